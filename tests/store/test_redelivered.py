"""What was delivered before a kill comes back as redelivered, whenever it was taken."""

from __future__ import annotations

from pathlib import Path

from broker.store import recorder
from tests.store.driven import Driven, Taker


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
