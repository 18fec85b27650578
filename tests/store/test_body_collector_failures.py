"""Collecting body files on a disk that fails: what cannot be told or kept keeps its file, and the
others do not wait for it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from broker.store.bodies.file import HEADER_BYTES, RECORD_OVERHEAD
from broker.store.files import disk
from tests.store import recorder
from tests.store.bodies_rig import Rig, backends
from tests.store.body_crashes import LIMIT, filled, kept
from tests.store.test_body_collector import STEPS

RECORD = RECORD_OVERHEAD + 5000


def damage(path: Path, number: int) -> None:
    """One bit of a file's record of this number is another one."""
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + number * RECORD + 1000] ^= 1
    path.write_bytes(content)


def file_of(rig: Rig, number: int) -> Path:
    return rig.path / f"bodies/{number:010d}-{number:010d}.0.bdy"


def runs(rig: Rig) -> int:
    count: int = rig.bodies.figures()["gc_runs"]
    return count


def collect(rig: Rig) -> None:
    """Collects while it is worth it, though the first runs fail."""
    for _ in range(3):
        rig.bodies.tick(1e12)
        rig.settle()
    rig.collect()


@backends
@pytest.mark.parametrize("damaged", [0, 12])
def test_a_damaged_body_in_a_file_without_a_table_costs_no_other_one(
    tmp_path: Path, backend: str, damaged: int
) -> None:
    rig = filled(tmp_path / "data", backend)
    path, expected = file_of(rig, 1), kept(rig)
    path.with_suffix(".toc").unlink()
    damage(path, damaged)
    collect(rig)
    assert runs(rig) > 0
    # Bodies 0, 3, 6, 9 and 12 of the first file live, and one of them cannot be read.
    left = [each for number, each in enumerate(expected) if number * 3 != damaged]
    taken = [rig.get(1) for _ in left]
    assert [each.body for each in taken] == left
    for each in taken[:2] + taken[3:]:
        rig.queues[1].settle_place(each.place)
    rig.settle()
    assert path.exists()
    rig.queues[1].requeue_place(taken[2].place)
    assert rig.get(1).body == left[2]
    rig.stop()


@backends
def test_a_file_that_cannot_be_read_stops_no_other_one(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = filled(tmp_path / "data", backend)
    path, expected = str(file_of(rig, 2)), kept(rig)
    read_part = disk.read_part

    def read_all_but_one(at: str, offset: int, length: int) -> bytes:
        if at == path:
            raise OSError(errno.EIO, "Input/output error", at)
        return read_part(at, offset, length)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "read_part", read_all_but_one)
        collect(rig)
    assert Path(path).exists()
    assert not file_of(rig, 3).exists()
    assert not file_of(rig, 4).exists()
    # Later it is tried again.
    rig.bodies.tick(1e12 + 599)
    rig.settle()
    assert Path(path).exists()
    rig.bodies.tick(1e12 + 601)
    rig.settle()
    assert not Path(path).exists()
    figures = rig.bodies.figures()
    assert figures["bytes"] <= 2 * figures["live_bytes"] + 3 * LIMIT
    assert kept(rig) == expected
    rig.stop()


@backends
def test_a_damaged_body_keeps_its_file_while_quarantine_has_no_space(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = filled(tmp_path / "data", backend)
    path = file_of(rig, 1)
    damage(path, 3)
    content = path.read_bytes()
    write_atomic = disk.write_atomic

    def write_all_but_quarantine(at: str, data: bytes) -> None:
        if "/quarantine/" in at:
            raise OSError(errno.ENOSPC, "No space left on device", at)
        write_atomic(at, data)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_atomic", write_all_but_quarantine)
        rig.bodies.tick(1e12)
        rig.settle(tick=False)
    assert path.read_bytes() == content
    assert rig.persister.quarantine.entries == []
    rig.bodies.tick(1e12 + 61)
    rig.settle(tick=False)
    assert not path.exists()
    (entry,) = rig.persister.quarantine.entries
    at = HEADER_BYTES + 3 * RECORD
    assert Path(entry["file"]).read_bytes() == content[at : at + RECORD]
    rig.stop()


def test_the_owner_of_a_damaged_body_is_named_on_the_loop(tmp_path: Path) -> None:
    """The tables of vhosts and queues change while the collector's thread works."""
    rig = filled(tmp_path / "data", "ram")
    asked: list[threading.Thread] = []

    def name_of(incarnation: int) -> tuple[str, str]:
        asked.append(threading.current_thread())
        return "/", "(shared bodies)"

    rig.persister.quarantine.name_of = name_of
    damage(file_of(rig, 1), 3)
    rig.collect()
    (entry,) = rig.persister.quarantine.entries
    assert (entry["vhost"], entry["queue"]) == ("/", "(shared bodies)")
    assert set(asked) == {threading.current_thread()}
    rig.stop()


@backends
def test_a_try_that_failed_behind_its_rename_costs_nothing_at_the_next_start(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = filled(tmp_path / "data", backend)
    expected = kept(rig)
    rig.persister.failed = lambda text, doubtful: None
    with monkeypatch.context() as patch:
        # A power cut brings back what was removed and not synced.
        patch.setattr(disk, "unlink", lambda path: None)
        recorder.fail("sync_directory", 1, errno.EIO)
        rig.bodies.tick(1e12)
        rig.settle(tick=False)
    assert runs(rig) == 0
    rig.crash()
    assert kept(rig) == expected
    rig.stop()


@pytest.mark.parametrize("step", STEPS)
def test_a_failed_try_leaves_no_file(tmp_path: Path, step: str) -> None:
    rig = filled(tmp_path / "data", "ram")
    before = sorted((rig.path / "bodies").iterdir())
    try:
        recorder.fail(step, 1, errno.EIO)
        rig.bodies.tick(1e12)
        rig.settle(tick=False)
    finally:
        recorder.fail(step, 0, 0)
    assert runs(rig) == 0
    assert sorted((rig.path / "bodies").iterdir()) == before
    rig.stop()
