"""Summaries of a stream's segments that do not fit."""

from __future__ import annotations

from pathlib import Path

from tests.crash.explore import strays
from tests.crash.inside import Inside, publish
from tests.crash.stream_script import ARGUMENTS, NAME, PERSISTENT, rows_of


def filled(directory: Path) -> list[Path]:
    """A stream of several segments after a kill; its summaries."""
    inside = Inside(directory, 2048).start()
    inside.vhost.declare_queue(NAME, durable=True, arguments=ARGUMENTS)
    for number in range(12):
        publish(inside.vhost, "", NAME, PERSISTENT, b"%03d" % number * 100)
        inside.sync()
    inside.tick()
    inside.kill()
    summaries = sorted(directory.rglob("meta.*"))
    assert len(summaries) > 1
    return summaries


def test_a_summary_that_does_not_fit_goes_with_its_segment(tmp_path: Path) -> None:
    first = filled(tmp_path / "data")[0]
    first.write_bytes(first.read_bytes()[:-1] + b"\0")
    inside = Inside(tmp_path / "data", 2048).start()
    # Before any round could write another one.
    inside.vhost.queues[NAME].purge()
    inside.tick()
    assert list(strays(tmp_path / "data")) == []
    assert rows_of(inside) == []
    inside.kill()


def test_a_summary_that_does_not_fit_is_written_anew(tmp_path: Path) -> None:
    first = filled(tmp_path / "data")[0]
    right = first.read_bytes()
    first.write_bytes(bytes(len(right) + 100))
    inside = Inside(tmp_path / "data", 2048).start()
    inside.tick()
    assert first.read_bytes() == right
    assert [offset for offset, _ in rows_of(inside)] == list(range(12))
    inside.kill()
