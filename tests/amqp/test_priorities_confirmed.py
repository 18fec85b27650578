"""Priority queues whose publishers wait for the consumers' acks (x-confirm-on): each level has a
log of its own, and a confirm finds its message in whichever it lies."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.amqp.test_confirm_on_ack import declare, publisher, told_nothing
from tests.conftest import Make

__all__ = ["publisher"]

LEVELS = (3, 0, 255, 1, 200, 255, 0)
HIGHEST_FIRST = [3, 6, 5, 1, 4, 2, 7]
"""Tags of messages of these priorities in the order of delivery."""


def publish(client: Client, queue: str, priorities: Iterable[int], size: int = 1) -> None:
    """A persistent message of each priority, with the priority for its bytes."""
    client.send(
        b"".join(
            raw.publish(1, "", queue, bytes([each]) * size, delivery_mode=2, priority=each)
            for each in priorities
        )
    )


def levelled(client: Client, queue: str = "", **arguments: Any) -> str:
    return declare(client, "ack", queue, max_priority=255, **arguments)


def confirms(client: Client, count: int, before: Iterable[int] = ()) -> dict[int, str]:
    """The next `count` tags to be told of, in any order, and how; `before` were told earlier."""
    told: dict[int, str] = {}
    known = set(before)
    while len(told) < count:
        got = client.read_method()
        assert got.name in ("basic.ack", "basic.nack"), got
        low = 1 if got.multiple else got.delivery_tag
        told |= {tag: got.name for tag in range(low, got.delivery_tag + 1) if tag not in known}
        known |= set(told)
    return told


def all_nacked(first: int, last: int) -> dict[int, str]:
    return dict.fromkeys(range(first, last + 1), "basic.nack")


def test_each_ack_confirms_the_message_of_its_level(publisher: Client, other: Client) -> None:
    queue = levelled(publisher)
    publish(publisher, queue, LEVELS)
    assert told_nothing(publisher)
    for tag in HIGHEST_FIRST:
        got = other.get(1, queue)
        assert got is not None
        assert got.body[0] == LEVELS[tag - 1]
        other.send_method(1, "basic.ack", delivery_tag=got.tag)
        other.fence(1)
        told = publisher.read_method()
        assert (told.name, told.delivery_tag, told.multiple) == ("basic.ack", tag, False)


def test_consumers_that_wait_confirm_every_level(publisher: Client, other: Client) -> None:
    queue = levelled(publisher)
    other.call(1, "basic.consume", queue=queue)
    publish(publisher, queue, LEVELS)
    for got in other.expect_messages(len(LEVELS), 1):
        other.send_method(1, "basic.ack", delivery_tag=got.tag)
    told = publisher.expect_confirms(1, len(LEVELS))
    assert told == dict.fromkeys(range(1, len(LEVELS) + 1), "basic.ack")


@pytest.mark.parametrize("size", [10, 3000])
def test_a_purge_tells_of_every_level_and_of_nothing_that_came_later(
    publisher: Client, other: Client, size: int
) -> None:
    """Short messages lie in memory, long ones have to be read from disk."""
    queue = levelled(publisher)
    priorities = [(number * 7) % 256 for number in range(1024)]
    publish(publisher, queue, priorities, size)
    publisher.fence(1)
    held = other.get(1, queue)
    assert held is not None
    # Answered after a round: what was gathered in memory is in files.
    other.call(1, "queue.declare", queue=f"{queue}.round", durable=True)
    assert other.call(1, "queue.purge", queue=queue).message_count == 1023
    publish(publisher, queue, [0, 128, 255, 9])
    held_tag = priorities.index(255) + 1
    told = confirms(publisher, 1023)
    assert told == {tag: "basic.nack" for tag in range(1, 1025) if tag != held_tag}
    publisher.fence(1)
    bodies = []
    for _ in range(4):
        got = other.get(1, queue)
        assert got is not None
        bodies.append(got.body[0])
        other.send_method(1, "basic.ack", delivery_tag=got.tag)
    assert bodies == [255, 128, 9, 0]
    assert other.get(1, queue) is None
    other.send_method(1, "basic.ack", delivery_tag=held.tag)
    rest = confirms(publisher, 5, told)
    assert rest == dict.fromkeys((held_tag, 1025, 1026, 1027, 1028), "basic.ack")


def test_a_level_that_is_first_used_after_a_purge_is_no_part_of_it(
    publisher: Client, other: Client
) -> None:
    queue = levelled(publisher)
    publish(publisher, queue, [5, 5])
    publisher.fence(1)
    assert other.call(1, "queue.purge", queue=queue).message_count == 2
    assert publisher.expect_confirms(1, 2) == all_nacked(1, 2)
    publish(publisher, queue, [9, 0])
    publisher.fence(1)
    assert other.call(1, "queue.purge", queue=queue).message_count == 2
    assert publisher.expect_confirms(1, 4, first=3) == all_nacked(3, 4)


def test_a_queue_that_is_deleted_nacks_every_level(publisher: Client, other: Client) -> None:
    queue = levelled(publisher)
    publish(publisher, queue, LEVELS, 2000)
    publisher.fence(1)
    assert other.call(1, "queue.delete", queue=queue).message_count == len(LEVELS)
    assert publisher.expect_confirms(1, len(LEVELS)) == all_nacked(1, len(LEVELS))
    again = levelled(publisher, queue)
    assert other.get(1, again) is None


def test_what_a_full_queue_drops_from_its_lowest_level_is_nacked(
    publisher: Client, other: Client
) -> None:
    queue = levelled(publisher, max_length=2)
    publish(publisher, queue, [1, 2, 3, 0])
    assert confirms(publisher, 2) == {1: "basic.nack", 4: "basic.nack"}


def test_what_expires_in_any_level_is_nacked(publisher: Client) -> None:
    queue = levelled(publisher, message_ttl=100)
    publish(publisher, queue, [0, 255, 7])
    assert publisher.expect_confirms(1, 3) == all_nacked(1, 3)


def test_a_requeued_message_keeps_its_confirm_open(publisher: Client, other: Client) -> None:
    queue = levelled(publisher)
    publish(publisher, queue, [1, 200])
    publisher.fence(1)
    got = other.get(1, queue)
    assert got is not None
    other.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=True)
    other.fence(1)
    assert told_nothing(publisher)
    again = [other.get(1, queue) for _ in range(2)]
    assert [(one.body[0], one.redelivered) for one in again if one] == [(200, True), (1, False)]
    other.send_method(1, "basic.ack", delivery_tag=0, multiple=True)
    assert publisher.expect_confirms(1, 2) == {1: "basic.ack", 2: "basic.ack"}


def test_levels_of_an_earlier_start_resolve_nothing_and_keep_their_order(
    make_broker: Make,
) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        levelled(client, "q")
        client.call(1, "confirm.select")
        publish(client, "q", LEVELS)
        client.call(1, "queue.declare", queue="round", durable=True)
        broker.kill()
    broker.start()
    address = (broker.host, broker.amqp_port)
    with Client.open(address) as client, Client.open(address) as other:
        client.call(1, "confirm.select")
        publish(client, "q", [200, 0, 255])
        client.fence(1)
        got = [other.get(1, "q") for _ in range(5)]
        assert [one.body[0] for one in got if one] == [255, 255, 255, 200, 200]
        other.send_method(1, "basic.ack", delivery_tag=2, multiple=True)
        other.fence(1)
        assert told_nothing(client)
        # The third and the fifth are of this start.
        other.send_method(1, "basic.ack", delivery_tag=5, multiple=True)
        assert confirms(client, 2) == {1: "basic.ack", 3: "basic.ack"}
        # Of the old ones 3, 1 and two of 0 are left, of this start's the one of 0.
        assert other.call(1, "queue.purge", queue="q").message_count == 5
        assert confirms(client, 1, (1, 3)) == {2: "basic.nack"}
