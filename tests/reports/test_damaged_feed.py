"""Feed files with lines that no broker wrote whole: they are left out, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from management.reports import bronze
from tests.reports.conftest import ROOT
from tests.reports.feeds import queue_line

GOOD = queue_line("q", publish=5).encode()


def feed_file(directory: Path, data: bytes) -> Path:
    path = directory / "2026-11-21T08-1.jsonl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "unreadable", "published"),
    [
        (GOOD.replace(b": 5}", b': 5, "publish": 6}') + GOOD, 0, 11),
        (GOOD.replace(b'"q"', b'"' + b"q" * (2 << 20) + b'"') + GOOD, 0, 10),
        (GOOD.replace(b'"q"', b'"q\xff"') + GOOD, 1, 5),
        (b"\xff\n" + GOOD, 1, 5),
        (GOOD + b'"text"\n[1]\n7\n' + GOOD, 3, 10),
        (GOOD.replace(b'"q"', b'"q\\ud800"') + GOOD, 1, 5),
        (b"\0" * 512 + b"\n" + GOOD, 1, 5),
        (GOOD + b"\n" + GOOD, 0, 10),
        (b"\n\n", 0, 0),
    ],
    ids=["doubled key", "long", "no UTF-8", "no UTF-8 first", "no object", "half a character",
         "zeros", "blank", "blank only"],
)  # fmt: skip
def test_damaged_lines_are_left_out_and_counted(
    tmp_path: Path, data: bytes, unreadable: int, published: int
) -> None:
    hour = bronze.hour_of(bronze.Source("2026-11-21T08-1", feed_file(tmp_path, data)))
    lines = [line for line in data.split(b"\n") if line]
    assert (hour.census.lines, hour.census.unreadable) == (len(lines), unreadable)
    rows = hour.rows.to_pylist()
    assert sum(row.get("publish", 0) for row in rows) == published


def test_a_file_that_begins_with_a_line_that_is_no_object_does_not_end_the_process(
    tmp_path: Path,
) -> None:
    # In a process of its own: Arrow's parser ends it.
    program = (
        "import sys; from pathlib import Path; from management.reports import bronze;"
        "source = bronze.Source('2026-11-21T08-1', Path(sys.argv[1]));"
        "print(bronze.hour_of(source).census.unreadable)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, feed_file(tmp_path, b"null\n" + GOOD)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
