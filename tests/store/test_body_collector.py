"""Collecting body files: what goes together, that nothing living is lost at any step (B3), and that
the disk holds little more than twice what lives (B5)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from broker.store.bodies.file import HEADER_BYTES, RECORD_OVERHEAD, BodyFile
from broker.store.bodies.files import BodyFiles
from broker.store.index.location_index import ENTRY
from tests.inner import body_entries
from tests.store import recorder
from tests.store.bodies_rig import backends, body
from tests.store.body_crashes import LIMIT, crashes_of_a_collection, filled, kept

LIMIT_OF_ONE = 1000 + HEADER_BYTES


def file(first: int, size: int, valid: int, **more: Any) -> BodyFile:
    """A body file with so many bytes of records, and so many of them in use."""
    made = BodyFile("/nowhere", first, first, 0)
    made.size, made.valid, made.sealed = HEADER_BYTES + size, valid, True
    for name, value in more.items():
        setattr(made, name, value)
    return made


def chosen(files: list[BodyFile]) -> list[int]:
    return [each.first for each in BodyFiles(files).choose(100.0, LIMIT_OF_ONE, 15.0)]


def test_it_takes_neighbours_when_half_of_three_files_is_dead() -> None:
    assert chosen([file(1, 1000, 300), file(2, 1000, 400), file(3, 1000, 700)]) == [1, 2]


@pytest.mark.parametrize("other_side", [False, True])
@pytest.mark.parametrize(("valid", "taken"), [(550, True), (900, True), (901, False)])
def test_a_file_takes_a_neighbour_with_it_that_is_not_half_dead_on_either_side(
    valid: int, taken: bool, other_side: bool
) -> None:
    """Both together have to give back what they copy, and to fit into one file."""
    sizes = [100, valid, 1000, 1000]
    files = [file(number, 1000, each) for number, each in enumerate(sizes)]
    wanted = [0, 1] if taken else [0]
    if other_side:
        files = [file(number, 1000, each) for number, each in enumerate(reversed(sizes))]
        wanted = [2, 3] if taken else [3]
    assert chosen(files) == wanted


def test_it_leaves_files_alone_while_little_is_dead() -> None:
    assert chosen([file(1, 1000, 900), file(2, 1000, 900), file(3, 1000, 900)]) == []


def test_it_takes_a_half_dead_file_when_it_is_quiet() -> None:
    files = BodyFiles([file(1, 1000, 900), file(2, 1000, 400, dropped_at=95.0)])
    assert files.choose(100.0, LIMIT_OF_ONE, 15.0) == []
    assert files.choose(111.0, LIMIT_OF_ONE, 15.0) == [files[2]]


@pytest.mark.parametrize("state", [{"sealed": False}, {"flying": 1}, {"collecting": True}])
def test_it_takes_none_that_is_written_or_in_hand(state: dict[str, Any]) -> None:
    assert chosen([file(1, 1000, 100, **state), file(2, 1000, 100), file(3, 1000, 100)]) == [2, 3]


def test_it_never_copies_more_than_it_gains_or_than_one_file_takes() -> None:
    chance = random.Random(4)
    for _ in range(300):
        files = BodyFiles(
            file(number, 1000, chance.randrange(1000)) for number in range(chance.randrange(1, 12))
        )
        run = files.choose(100.0, LIMIT_OF_ONE, 15.0)
        valid = sum(each.valid for each in run)
        assert valid <= sum(each.garbage for each in run)
        assert valid <= 1000
        first = run[0].first if run else 0
        assert [each.first for each in run] == list(range(first, first + len(run)))
        # While half of everything is dead there is always one (B5).
        assert run or len(files) < 3 or files.garbage * 2 <= files.size
        assert files.size == sum(each.size for each in files)
        assert files.valid == sum(each.valid for each in files)


def test_every_file_has_its_turn_though_a_choice_looks_at_few() -> None:
    """The first 3,000 files are half dead and cannot be taken; the one behind them is found."""
    files = BodyFiles(
        [file(number, 1000, 400, collecting=True) for number in range(3000)] + [file(3000, 1000, 9)]
    )
    found = [files.choose(100.0, LIMIT_OF_ONE, 15.0) for _ in range(4)]
    assert [each.first for run in found for each in run][:1] == [3000]
    assert found[0] == []


@backends
def test_b5_the_disk_holds_at_most_twice_what_lives_and_three_files(
    tmp_path: Path, backend: str
) -> None:
    rig = filled(tmp_path / "data", backend)
    before = rig.image()
    assert rig.collect() > 0
    figures = rig.bodies.figures()
    assert figures["bytes"] <= 2 * figures["live_bytes"] + 3 * LIMIT
    assert figures["gc_copied_bytes"] <= figures["gc_reclaimed_bytes"]
    assert sum(each.stat().st_size for each in rig.path.rglob("*.bdy")) == figures["bytes"]
    assert rig.image() == before
    expected = [body(number) for number in range(0, 60, 3)]
    assert kept(rig) == expected
    rig.crash()
    assert rig.image() == before
    assert kept(rig) == expected
    rig.restart()
    assert rig.was_clean
    assert kept(rig) == expected
    rig.queues[1].purge()
    rig.settle()
    assert rig.image() == {}
    rig.stop()


@backends
def test_bodies_may_die_while_they_are_copied(tmp_path: Path, backend: str) -> None:
    rig = filled(tmp_path / "data", backend)
    # A collection is in hand, and its result is not taken yet.
    rig.bodies.tick(1e12)
    assert rig.bodies.collector.busy
    rig.queues[1].purge()
    rig.settle()
    assert rig.image() == {}
    rig.collect()
    assert rig.bodies.figures()["live_bytes"] == 0
    rig.crash()
    assert rig.image() == {}
    rig.stop()


@backends
def test_a_damaged_body_is_in_quarantine_before_its_file_goes(tmp_path: Path, backend: str) -> None:
    rig = filled(tmp_path / "data", backend)
    expected = kept(rig)
    directory = rig.path / "bodies"
    places = {id: ENTRY.unpack(value)[:3] for id, value in body_entries(rig.bodies)}

    def file_of(id: bytes) -> Path:
        (path,) = directory.glob(f"{places[id][0]:010d}-*.bdy")
        return path

    def body_of(id: bytes) -> bytes:
        _, offset, length = places[id]
        return file_of(id).read_bytes()[offset + RECORD_OVERHEAD : offset + length]

    (damaged,) = [id for id in places if body_of(id) == expected[3]]
    path, (number, offset, length) = file_of(damaged), places[damaged]
    content = bytearray(path.read_bytes())
    content[offset + 1000] ^= 1
    path.write_bytes(content)
    assert rig.collect() > 0
    assert not path.exists()
    (entry,) = rig.persister.quarantine.entries
    assert (entry["segment"], entry["position"], entry["length"]) == (number, offset, length)
    assert Path(entry["file"]).read_bytes() == content[offset : offset + length]
    assert damaged not in rig.image()
    # Its message is dropped when its turn comes; nothing else is taken for its body.
    left = expected[:3] + expected[4:]
    taken = [rig.get(1) for _ in left]
    assert [each.body for each in taken] == left
    assert rig.get(1).body is None
    assert rig.persister.quarantine.count == 1
    for each in taken:
        rig.queues[1].requeue_place(each.place)
    rig.restart()
    assert rig.was_clean
    assert kept(rig) == left
    rig.stop()


STEPS = ("write", "sync", "write_file", "rename")


@backends
@pytest.mark.parametrize("step", STEPS)
def test_b3_a_collection_that_fails_at_any_step_changes_nothing(
    tmp_path: Path, backend: str, step: str
) -> None:
    rig = filled(tmp_path / "data", backend)
    before, expected = rig.image(), kept(rig)
    recorder.fail(step, 1, 5)
    try:
        rig.bodies.tick(1e12)
        rig.settle(tick=False)
    finally:
        recorder.fail(step, 0, 0)
    assert not rig.failures
    assert rig.image() == before
    assert kept(rig) == expected
    rig.crash()
    assert rig.image() == before
    assert kept(rig) == expected
    assert not list((rig.path / "bodies").glob("*.tmp"))
    rig.stop()


@backends
def test_b3_a_directory_that_cannot_be_synced_ends_the_broker(tmp_path: Path, backend: str) -> None:
    """The error is told once: the next round's sync would not hear that the name of a file which
    it confirms is not on disk."""
    rig = filled(tmp_path / "data", backend)
    before, expected = rig.image(), kept(rig)
    failures: list[tuple[str, bool]] = []
    rig.persister.failed = lambda text, doubtful: failures.append((text, doubtful))
    recorder.fail("sync_directory", 1, 5)
    try:
        rig.bodies.tick(1e12)
        rig.settle(tick=False)
    finally:
        recorder.fail("sync_directory", 0, 0)
    assert failures == [(f"Input/output error in sync_directory of {rig.path}/bodies", True)]
    rig.crash()
    assert rig.image() == before
    assert kept(rig) == expected
    rig.stop()


@backends
def test_b3_a_crash_behind_any_step_leaves_one_record_of_each_body(
    tmp_path: Path, backend: str
) -> None:
    """`make bench-store ARGS="--only T-B6"` does the same with many seeds."""
    assert crashes_of_a_collection(tmp_path / "data", backend) > 5
