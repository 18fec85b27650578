"""What was delivered before a kill comes back as redelivered, whenever it was taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.fields import properties
from tests.store import recorder
from tests.store.bodies_rig import Rig
from tests.store.driven import Driven, Place, Taker


def end_turn(driven: Driven) -> None:
    """What was asked for in this turn is handed to the threads."""
    while driven.callbacks:
        callbacks, driven.callbacks[:] = driven.callbacks[:], []
        for callback in callbacks:
            callback()


def test_what_is_on_its_way_to_the_disk_is_delivered_with_a_mark_of_it_or_not_yet(
    tmp_path: Path,
) -> None:
    """Nobody takes messages when the round begins, so it holds no watermark. The one that is asked
    for then travels in the next round, and the records of this one may be on disk before."""
    driven = Driven(tmp_path)
    told: list[bool] = []
    recorder.stall("write", 60)
    try:
        driven.publish(b"a message")
        driven.persister.after_round(lambda: told.append(True))
        end_turn(driven)
        takers = [Taker(), Taker()]
        for taker in takers:
            driven.queue.get(taker)
            driven.queue.wake()
            end_turn(driven)
        assert not takers[0].done
    finally:
        recorder.stall("write", 0)
    driven.pump(lambda: takers[0].done)
    assert takers[0].body == b"a message"
    assert not takers[0].redelivered
    driven.kill()
    again = Driven(tmp_path)
    assert again.recover() == []
    taker = again.take()
    assert (taker.body, taker.redelivered) == (b"a message", True)
    again.kill()


@pytest.mark.parametrize("written", [True, False], ids=["written", "in memory"])
@pytest.mark.parametrize("priorities", [0, 5])
def test_a_clean_stop_leaves_the_mark_on_what_was_delivered_and_on_nothing_else(
    tmp_path: Path, priorities: int, written: bool
) -> None:
    """Also of messages that are written only by the stop itself."""
    arguments = {0: {"x-max-priority": priorities}} if priorities else {}
    rig = Rig(tmp_path / "data", queues=1, arguments=arguments)
    for number in range(10):
        rig.publish(bytes([number]), [0], priority=2)
    if written:
        rig.settle()
    taken = [rig.get_at_once(0) if not written else rig.get(0) for _ in range(3)]
    rig.queues[0].settle_place(taken[1].place)
    for each in (taken[0], taken[2]):
        rig.queues[0].requeue_place(each.place)
    rig.stop(settled=written)
    rig.start()
    got = [rig.get(0) for _ in range(9)]
    assert [each.body for each in got] == [bytes([number]) for number in (0, *range(2, 10))]
    assert [bool(each.place[3]) for each in got] == [True, True, *[False] * 7]
    rig.stop()


def test_what_was_taken_is_written_with_its_mark_when_all_behind_it_was_purged(
    tmp_path: Path,
) -> None:
    """A purge of the newest segment leaves the older ones, all of whose messages were taken."""
    driven = Driven(tmp_path, segment_size=65536)
    for number in range(100):
        driven.publish(number.to_bytes(2, "big") * 500)
    taken = []
    while not taken or taken[-1].place[0] == 1:
        taken.append(Taker())
        driven.queue.get(taken[-1])
        assert taken[-1].done, "no turn has ended: all is in memory"
    driven.settle(taken.pop())
    assert driven.queue.purge() > 0
    driven.sync()
    driven.kill()
    again = Driven(tmp_path)
    assert again.recover() == []
    found = [again.take() for _ in taken]
    assert [taker.body for taker in found] == [taker.body for taker in taken]
    assert all(taker.redelivered for taker in found)
    assert again.take().body is None
    again.kill()


class Counted(Taker):
    """Keeps the properties, too."""

    listed = b""

    def message(
        self, queue: Any, exchange: bytes, key: bytes, props: bytes, body: bytes, place: Place
    ) -> None:
        self.listed = props
        super().message(queue, exchange, key, props, body, place)


@pytest.mark.parametrize("large", [0, 40], ids=["in its tail", "in a tail that is full"])
def test_how_often_a_message_came_back_outlives_a_kill(tmp_path: Path, large: int) -> None:
    def take(driven: Driven) -> Counted:
        taker = Counted()
        driven.queue.get(taker)
        driven.pump(lambda: taker.done)
        return taker

    limit = {"x-delivery-limit": 50}
    driven = Driven(tmp_path, 64 << 20, arguments=limit)
    driven.publish(b"comes back")
    driven.requeue(take(driven))
    for _ in range(large):
        driven.publish(bytes(30_000))
    for _ in range(3):
        driven.requeue(take(driven))
    driven.sync()
    driven.kill()
    again = Driven(tmp_path, 64 << 20, arguments=limit)
    again.recover()
    taker = take(again)
    assert taker.body == b"comes back"
    assert properties.decode(taker.listed)["headers"]["x-delivery-count"] == 4
    again.kill()
