"""The short form of `make fuzz-store`, and what damage to the journal of definitions costs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.explore import scratch
from tests.crash.fuzz import Fuzzed, fuzz
from tests.crash.inside import Inside
from tests.crash.small import cut_everywhere

FILES = {
    *("segment", "acks", "summary", "stream", "places", "timing index", "journal"),
    *("bodies", "contents", "index", "filter", "marker"),
}
"""Every kind of file."""


def test_damaged_files_are_told_of_and_no_altered_byte_is_served() -> None:
    total = Fuzzed()
    for seed in (7, 8, 11):
        total.add(fuzz(seed, 50))
    assert not total.violations, "\n".join(total.violations)
    assert total.by_kind.keys() >= FILES


@pytest.mark.parametrize(("backend", "others"), [("ram", 29), ("leveldb", 499)])
def test_a_file_cut_at_any_byte_costs_no_more_than_what_was_behind(
    backend: str, others: int
) -> None:
    base = scratch()
    try:
        starts, wrong = cut_everywhere(base, backend, True, others)
    finally:
        shutil.rmtree(base)
    assert not wrong, "\n".join(wrong[:5])
    assert starts > 100


def prepared(directory: Path) -> Path:
    """Three queues with a message each; the journal."""
    inside = Inside(directory).start()
    for name in ("first", "second", "third"):
        inside.vhost.declare_queue(name, durable=True)
        inside.vhost.publish("", name, b"\x10\x00\x02", name.encode())
    inside.sync()
    inside.kill()
    (journal,) = directory.glob("vhosts/*/definitions.journal")
    return journal


def test_one_damaged_definition_costs_no_other_queue(tmp_path: Path) -> None:
    journal = prepared(tmp_path / "data")
    data = bytearray(journal.read_bytes())
    data[data.index(b"second")] ^= 1
    journal.write_bytes(data)
    for times in range(2):
        inside = Inside(tmp_path / "data").start()
        assert set(inside.vhost.queues) == {"first", "third"}
        assert [taker.body for taker in inside.drain("third")] == [b"third"]
        assert ("was damaged" in " ".join(inside.problems)) == (times == 0)
        inside.kill()
    kept = list((tmp_path / "data/quarantine").iterdir())
    assert any(path.read_bytes() == data for path in kept if path.is_file())
    assert any(b"second" in each.read_bytes() for path in kept for each in path.glob("msgs.*"))


def test_a_journal_cut_at_every_byte_costs_what_was_behind_the_cut(tmp_path: Path) -> None:
    journal = prepared(tmp_path / "data")
    data = journal.read_bytes()
    for cut in range(9, len(data), 3):
        journal.write_bytes(data[:cut])
        inside = Inside(tmp_path / "data").start()
        assert set(inside.vhost.queues) <= {"first", "second", "third"}
        if cut > 12 and len(inside.vhost.queues) == 0:
            assert any("behind the last sound definition" in text for text in inside.problems)
        inside.kill()
    kept = (tmp_path / "data/quarantine").glob("*/msgs.*")
    assert len(list(kept)) == 3


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    journal = prepared(tmp_path / "data")
    journal.write_bytes(b"LVRJ\x09" + bytes(40))
    with pytest.raises(ValueError, match="no journal of this version; move it away"):
        Inside(tmp_path / "data").start()
