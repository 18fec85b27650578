"""What a full queue refuses: confirms of a channel beside it, and dead letters."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.kernel.contracts import Exchange
from tests.amqp.raw import Method
from tests.amqp.wired import Wired


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    """Its channel confirms."""
    wired = Wired(tmp_path)
    wired.channel.select_confirms()
    yield wired
    wired.stop()


@pytest.fixture
def full(wired: Wired) -> str:
    return wired.queue(max_length=0, overflow="reject-publish").name


def answers(told: list[Method]) -> list[tuple[str, int, bool]]:
    return [(each.name, each.delivery_tag, each.multiple) for each in told]


def durable(wired: Wired) -> None:
    wired.publish("durable", b"x", delivery_mode=2)


def figures(wired: Wired) -> tuple[int, int, int]:
    """Unconfirmed, the oldest of them, confirmed."""
    channel = wired.channel
    return (
        channel.messages_unconfirmed,
        channel.oldest_unconfirmed,
        channel.counters()["confirm"],
    )


def test_a_refused_publish_behind_one_that_waits_is_not_unconfirmed_for_ever(
    wired: Wired, full: str
) -> None:
    durable(wired)
    wired.publish(full)
    assert figures(wired) == (1, 1, 0)
    assert answers(wired.sync()) == [("basic.nack", 2, False), ("basic.ack", 1, False)]
    assert figures(wired) == (0, 0, 1)
    durable(wired)
    assert answers(wired.sync()) == [("basic.ack", 3, False)]
    assert figures(wired) == (0, 0, 2)


def test_a_refused_publish_between_others_is_not_counted_as_confirmed(
    wired: Wired, full: str
) -> None:
    durable(wired)
    for _ in range(3):
        wired.publish(full)
    durable(wired)
    wired.publish(full)
    assert figures(wired) == (2, 1, 0)
    told = answers(wired.sync())
    assert told == [*(("basic.nack", tag, False) for tag in (2, 3, 4, 6)), ("basic.ack", 5, True)]
    assert figures(wired) == (0, 0, 2)


def test_a_refused_publish_is_not_acked_when_confirms_begin_to_wait_for_consumers(
    wired: Wired, full: str
) -> None:
    slow = wired.queue(confirm_on="ack")
    wired.consume(slow, "c")
    durable(wired)
    wired.publish(full)
    durable(wired)
    wired.publish(full)
    wired.publish(slow.name)
    assert figures(wired) == (3, 1, 0)
    told = [each for each in wired.sync() if each.name != "basic.deliver"]
    assert answers(told) == [
        ("basic.nack", 2, False),
        ("basic.nack", 4, False),
        ("basic.ack", 3, True),
    ]
    assert figures(wired) == (1, 5, 2)
    wired.send("basic.ack", delivery_tag=1)
    assert answers(wired.run()) == [("basic.ack", 5, False)]
    assert figures(wired) == (0, 0, 3)


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_message_that_one_of_several_queues_loses_is_not_unconfirmed_when_all_have_answered(
    wired: Wired, first: int
) -> None:
    queues = [wired.queue(confirm_on="ack") for _ in range(3)]
    wired.wire.routes[b"all"] = Exchange(""), tuple(queues)
    for queue in queues:
        queue.dead_letter = lambda *_: None
        wired.consume(queue, queue.name)
    wired.publish("all")
    wired.run()
    told: list[Method] = []
    for tag in (1, 2, 3):
        fields = {"requeue": False} if tag == first + 1 else {}
        wired.send("basic.reject" if fields else "basic.ack", delivery_tag=tag, **fields)
        told += wired.run()
        # The other queues still have it.
        assert wired.channel.messages_unconfirmed == (tag < 3)
    assert answers(told) == [("basic.nack", 1, False)]
    durable(wired)
    assert answers(wired.sync()) == [("basic.ack", 2, False)]


def test_dead_letters_for_a_full_queue_are_offered_again_by_one_timer(wired: Wired) -> None:
    grave = wired.queue(max_length=1, overflow="reject-publish")
    source = wired.queue(dead_letter_exchange="")
    timers: list[Callable[[], None]] = []
    source.later = lambda _seconds, again: timers.append(again)
    source.dead_letter = lambda *_: ((grave,), b"", b"grave", b"\0\0", None)
    wired.publish(grave.name)
    wired.consume(source, "c")
    for tag in range(1, 6):
        wired.publish(source.name)
        wired.run()
        wired.send("basic.reject", delivery_tag=tag, requeue=False)
        wired.run()
    assert len(timers) == 1
    timers.pop()()
    wired.run()
    assert len(timers) == 1
    grave.purge()
    timers.pop()()
    wired.run()
    assert (grave.messages_ready, source.messages_unacknowledged) == (1, 4)
    assert len(timers) == 1
