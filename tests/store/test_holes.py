"""Disk space of settled messages is given back without moving anything."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store import recorder
from tests.store.driven import Driven, Taker

BODY = 1000
SEGMENT = 1 << 20


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    """A function that starts a queue on the test's directory, again and again."""
    started: list[Driven] = []

    def start(**options: int) -> Driven:
        driven = Driven(tmp_path, **{"segment_size": SEGMENT, **options})
        started.append(driven)
        return driven

    yield start
    recorder.fail("punch", 0, 0)
    recorder.record(False)


def body(number: int) -> bytes:
    return number.to_bytes(8, "big") + bytes([number % 251]) * (BODY - 8)


def fill(driven: Driven, count: int = 3000) -> list[Taker]:
    """Publishes, and takes all."""
    for number in range(count):
        driven.publish(body(number))
    driven.sync()
    return [driven.take() for _ in range(count)]


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_one_unacked_message_pins_a_few_blocks_and_not_its_segment(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    taken = fill(driven)
    kept = taken[1500]
    for taker in taken:
        if taker is not kept:
            driven.settle(taker)
    driven.tick()
    driven.tick()
    segments = driven.files("msgs")
    pinned = next(path for path in segments if int(path.suffix[1:]) == kept.place[0])
    assert pinned.stat().st_size > 900_000
    # The header's block, what is around the message, and what was not worth while.
    assert allocated(pinned) <= 16384
    assert driven.queue.disk_bytes == pytest.approx(
        sum(path.stat().st_size for path in driven.files("acks"))
        + allocated(pinned)
        + sum(allocated(path) for path in segments if path != pinned),
        abs=20000,
    )
    assert driven.queue.disk_bytes_live == len(kept.body or b"") + kept.place[2] - BODY
    driven.kill()

    again = make()
    assert again.recover() == []
    assert again.queue.messages_ready == 1
    taker = again.take()
    assert (taker.body, taker.place[:2]) == (kept.body, kept.place[:2])
    again.kill()


def test_holes_are_made_only_after_their_acks_are_synced(make: Callable[..., Driven]) -> None:
    driven = make()
    taken = fill(driven)
    recorder.record(True)
    for taker in taken[:-1:2] + taken[1:1500:2]:
        driven.settle(taker)
    driven.tick()
    events = recorder.recorded()
    driven.kill()
    punched = [event for event in events if event[0] == "punch"]
    assert punched
    clean: dict[str, bool] = {}
    for kind, path, _, _, error in events:
        assert not error
        if path is not None and "/acks." in path:
            if kind == "write":
                clean[path] = False
            elif kind == "sync":
                clean[path] = True
        elif kind == "sync_file_system":
            clean = dict.fromkeys(clean, True)
        elif kind == "punch":
            assert path is not None
            assert clean[path.replace("msgs.", "acks.")]


def test_a_hole_is_neither_damage_nor_a_tail_at_recovery(
    make: Callable[..., Driven], tmp_path: Path
) -> None:
    driven = make()
    taken = fill(driven)
    kept = taken[0:3000:250]
    for taker in taken:
        if taker not in kept:
            driven.settle(taker)
    driven.tick()
    sizes = {path.name: path.stat().st_size for path in driven.files("msgs")}
    driven.kill()
    for _ in range(2):
        again = make()
        assert again.recover() == []
        assert again.drain() == [taker.body for taker in kept]
        assert {
            path.name: path.stat().st_size for path in again.files("msgs") if path.name in sizes
        } == {name: sizes[name] for name in sizes if (again.directory / name).exists()}
        again.kill()
    assert not (tmp_path / "quarantine").exists()


def test_a_segment_that_is_being_read_is_not_made_holes_in(make: Callable[..., Driven]) -> None:
    driven = make()
    for number in range(900):
        driven.publish(body(number))
    for number in range(900, 2000):
        driven.publish(body(number))
    driven.sync()
    recorder.record(True)
    for _ in range(600):
        driven.settle(driven.take())
    driven.tick()
    assert not [event for event in recorder.recorded() if event[0] == "punch"]
    driven.kill()


def test_space_that_a_killed_broker_did_not_give_back_is_given_back_later(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    taken = fill(driven)
    for taker in taken[1:]:
        driven.settle(taker)
    recorder.fail("punch", 1, errno.EIO)
    driven.tick()
    (first,) = [path for path in driven.files("msgs") if int(path.suffix[1:]) == 1]
    assert allocated(first) > 900_000
    driven.kill()
    again = make()
    assert again.recover() == []
    again.tick()
    assert allocated(first) <= 16384
    again.kill()


def test_a_file_system_without_holes_is_said_once(
    make: Callable[..., Driven], caplog: pytest.LogCaptureFixture
) -> None:
    driven = make()
    taken = fill(driven)
    recorder.fail("punch", 1, errno.EOPNOTSUPP)
    for taker in taken[1:]:
        driven.settle(taker)
    driven.tick()
    driven.tick()
    assert not driven.persister.background.makes_holes
    assert sum("cannot give back" in record.getMessage() for record in caplog.records) == 1
    assert driven.take().body is None
    driven.kill()


def test_an_idle_empty_queue_holds_no_file(make: Callable[..., Driven]) -> None:
    driven = make()
    for taker in fill(driven, 10):
        driven.settle(taker)
    driven.tick()
    driven.queue.rest_if_idle(0.0, 0.0)
    driven.queue.rest_if_idle(1.0, 0.0)
    driven.tick()
    assert list(driven.directory.iterdir()) == []
    assert driven.queue.store is None
    driven.publish(b"later")
    driven.sync()
    # Numbers go on: what was removed can never be met again.
    assert [path.name for path in driven.files("msgs")] == ["msgs.0000000002"]
    driven.kill()


def test_purging_behind_an_unacked_message_gives_the_space_back(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    for number in range(3000):
        driven.publish(body(number))
    driven.sync()
    taker = driven.take()
    assert driven.queue.purge() == 2999
    driven.publish(b"next")
    driven.sync()
    while driven.take().body not in (b"next", None):
        pass
    driven.tick()
    (first, _) = driven.files("msgs")
    assert allocated(first) <= 16384
    driven.requeue(taker)
    assert driven.take().body == body(0)
    driven.kill()
    again = make()
    assert again.recover() == []
    assert again.drain() == [body(0), b"next"]
    again.kill()


def test_a_purge_of_all_that_comes_later_leaves_no_segment_without_holes(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    for number in range(3000):
        driven.publish(body(number))
    driven.sync()
    taken = [driven.take()]
    while taken[-1].place[0] == taken[0].place[0]:
        taken.append(driven.take())
    driven.settle(taken.pop())
    driven.queue.purge()
    for taker in taken[:500] + taken[501:]:
        driven.settle(taker)
    driven.tick()
    driven.tick()
    (pinned,) = driven.files("msgs")
    assert pinned.stat().st_size > 900_000
    assert allocated(pinned) <= 16384
    driven.kill()
