"""Files that a start needs and the disk does not read, or not all of: it starts, says so, and
serves what it can read; what it cannot is there when the disk reads again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.features.dedup.id_log import IdLog
from broker.store.files import disk
from tests.store.bodies_rig import Rig, backends, body, settings_of
from tests.store.driven import Driven
from tests.store.test_failing_schedule import COUNT as DELAYED
from tests.store.test_failing_schedule import Delayed, stopped
from tests.store.test_recovery import SEGMENT, fill

SECTOR = 4096
COUNT = 60
EVERYWHERE = range(1 << 30)

Fails = Callable[[str, range], None]


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Fails:
    """From the call on, the disk does not read these positions of files whose names begin so."""
    read, read_part = disk.read, disk.read_part

    def fail(name: str, where: range) -> None:
        def failing(path: str, at: int, end: int) -> None:
            if Path(path).name.startswith(name) and at < where.stop and where.start < end:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        def whole(path: str) -> bytes:
            failing(path, 0, 1 << 30)
            return read(path)

        def part(path: str, at: int, length: int) -> bytes:
            failing(path, at, at + length)
            return read_part(path, at, length)

        monkeypatch.setattr(disk, "read", whole)
        monkeypatch.setattr(disk, "read_part", part)

    return fail


def test_a_segment_that_cannot_be_read_does_not_stop_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    driven = Driven(tmp_path, segment_size=SEGMENT)
    bodies = fill(driven)
    first, second = driven.files("msgs")[:2]
    for meta in driven.files("meta"):
        meta.unlink()
    driven.kill()
    in_first = (first.stat().st_size - 8) // (len(bodies[0]) + 28)
    fails(first.name, EVERYWHERE)
    again = Driven(tmp_path, segment_size=SEGMENT)
    (problem,) = again.recover()
    monkeypatch.undo()
    assert "cannot be read: Input/output error" in problem
    assert again.drain() == bodies[in_first:]
    assert first.exists()
    assert second.exists()
    again.kill()
    third = Driven(tmp_path, segment_size=SEGMENT)
    assert third.recover() == []
    assert third.drain() == bodies
    third.kill()


@pytest.mark.parametrize(
    ("where", "again"),
    [
        (EVERYWHERE, range(0, 2000, 2)),
        (range(SECTOR, SECTOR + 1), range(660, 1380, 2)),
        (range(1), range(0, 700, 2)),
    ],
    ids=["all", "a sector", "the first"],
)
def test_acks_that_cannot_be_read_bring_their_messages_again(
    tmp_path: Path, fails: Fails, where: range, again: range
) -> None:
    rig = Rig(tmp_path / "data", queues=1, segment_size=1 << 20)
    for number in range(2000):
        rig.publish(body(number, 50), [0])
    rig.settle()
    taken = [rig.get(0) for _ in range(2000)]
    for each in taken[::2]:
        rig.queues[0].settle_place(each.place)
    rig.stop()
    fails("acks.", where)
    rig.start()
    (told,) = [problem for problem in rig.problems if "cannot be read" in problem]
    assert "acks.0000000001: " in told
    got = set()
    while (each := rig.get(0)).body is not None:
        got.add(int.from_bytes(each.body[:4]))
    unacked = set(range(1, 2000, 2))
    assert unacked <= got
    # An entry of 12 bytes for each ack, and a few others.
    assert set(again[20:-20]) <= got - unacked <= set(again)
    rig.stop()


@backends
@pytest.mark.parametrize(
    "where", [EVERYWHERE, range(5 * SECTOR, 5 * SECTOR + 1)], ids=["all", "a sector"]
)
def test_bodies_that_cannot_be_read_are_there_when_they_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails, backend: str, where: range
) -> None:
    """The last file of shared bodies has no table of contents after a crash."""
    settings = settings_of(backend, collect_quiet=0)
    rig = Rig(tmp_path / "data", queues=2, settings=settings, segment_size=1024)
    for number in range(COUNT):
        rig.publish(body(number), [0, 1])
        rig.publish(body(COUNT + number, 50), [0])
        rig.settle(tick=False)
    rig.settle()
    rig.stop(clean=False)
    with monkeypatch.context():
        fails("0000000001-0000000001.0.bdy", where)
        rig.start()
        monkeypatch.undo()
    assert any(".bdy: " in each and "It was left alone" in each for each in rig.problems)
    held = rig.queues[1].messages_ready
    assert held < COUNT
    assert (held > 0) == (where is not EVERYWHERE)
    while (taken := rig.get(0)).body is not None:
        number = int.from_bytes(taken.body[:4])
        assert taken.body == (body(number) if number < COUNT else body(number, 50))
    rig.collect()
    rig.stop()
    # The disk reads again.
    rig.start()
    assert [rig.get(1).body for _ in range(COUNT)] == [body(number) for number in range(COUNT)]
    assert rig.bodies.figures()["dangling"] == 0
    rig.stop()


def test_due_times_that_are_read_once_and_not_again_are_found_in_the_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = stopped(tmp_path).rig
    first, second, *_ = sorted((rig.path / "schedule").rglob("due.*"))
    # A part of the messages is in no run: the others are read again to tell which.
    first.unlink()
    read = disk.read
    reads: list[str] = []

    def once(path: str) -> bytes:
        reads.append(path)
        if path == str(second) and reads.count(path) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return read(path)

    monkeypatch.setattr(disk, "read", once)
    rig.start()
    delayed = Delayed(rig)
    (problem,) = delayed.holding.recover()
    assert f"{second} cannot be read again: Input/output error" in problem
    delayed.holding.start()
    delayed.until(lambda: rig.queues[0].messages_ready == DELAYED)
    delayed.until(lambda: delayed.holding.messages_leaving == 0)
    delayed.holding.close()
    rig.stop()


def test_ids_that_cannot_be_read_are_told_of(tmp_path: Path, fails: Fails) -> None:
    driven = Driven(tmp_path)
    log = IdLog(driven.persister, str(tmp_path / "ids"), 7, 2)
    disk.makedirs(str(tmp_path / "ids"))
    for number in range(3):
        log.append(bytes([number]) * 16, 9, 9)
        driven.sync()
    fails("ids.0000000001", EVERYWHERE)
    problems: list[str] = []
    found = IdLog(driven.persister, str(tmp_path / "ids"), 7, 2).recover(problems)
    assert [row[0] for row in found] == [b"\x02" * 16]
    (problem,) = problems
    assert "ids.0000000001 cannot be read: Input/output error" in problem
