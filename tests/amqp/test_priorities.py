"""Priority queues: higher levels first, each in the order of publishing."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.limited_queues import drain, fill, limited, ready, seconds_until
from tests.amqp.raw import Client


def send(client: Client, queue: str, priorities: Iterable[int | None]) -> None:
    """A message for each priority, which is its body, behind its number."""
    data = b""
    for number, priority in enumerate(priorities):
        values = {} if priority is None else {"priority": priority}
        data += raw.publish(1, "", queue, b"%d:%s" % (number, str(priority).encode()), **values)
    client.send(data)


def test_higher_priorities_come_first_and_equal_ones_in_order(client: Client) -> None:
    queue = limited(client, x_max_priority=9)
    send(client, queue, [1, 9, 0, 5, 9, 1])
    assert ready(client, queue) == 6
    assert drain(client, queue) == [b"1:9", b"4:9", b"3:5", b"0:1", b"5:1", b"2:0"]


def test_every_one_of_256_levels_works(client: Client) -> None:
    queue = limited(client, x_max_priority=255)
    order = [(number * 101) % 256 for number in range(256)]
    send(client, queue, order)
    assert [int(body.split(b":")[1]) for body in drain(client, queue)] == list(range(255, -1, -1))


def test_a_priority_above_the_highest_counts_as_the_highest(client: Client) -> None:
    queue = limited(client, x_max_priority=2)
    send(client, queue, [1, 2, 200, 3])
    assert drain(client, queue) == [b"1:2", b"2:200", b"3:3", b"0:1"]


def test_a_message_without_priority_has_the_lowest(client: Client) -> None:
    queue = limited(client, x_max_priority=5)
    send(client, queue, [None, 0, 1, None])
    assert drain(client, queue) == [b"2:1", b"0:None", b"1:0", b"3:None"]


def test_properties_before_the_priority_do_not_hide_it(client: Client) -> None:
    queue = limited(client, x_max_priority=5)
    fill(client, queue, b"low")
    more: dict[str, Any] = {
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "headers": {"priority": 0, "table": {"a": [1, "x"]}},
        "delivery_mode": 2,
        "message_id": "m",
    }
    fill(client, queue, b"high", priority=3, **more)
    assert drain(client, queue) == [b"high", b"low"]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 0}])
def test_a_queue_without_levels_ignores_priorities(
    client: Client, name: str, arguments: dict[str, Any]
) -> None:
    client.call(1, "queue.declare", queue=name, arguments=arguments)
    send(client, name, [1, 9, 0])
    assert drain(client, name) == [b"0:1", b"1:9", b"2:0"]


@pytest.mark.parametrize("value", [-1, 256, 300, "5", True, 1.5, None, [1]])
def test_it_refuses_a_number_of_levels_that_is_none(client: Client, name: str, value: Any) -> None:
    client.send_method(1, "queue.declare", queue=name, arguments={"x-max-priority": value})
    client.expect_channel_close(1, 406, 50, 10, "invalid arg 'x-max-priority' for queue")


def test_a_redeclaration_needs_the_same_levels(client: Client) -> None:
    queue = limited(client, x_max_priority=5)
    client.call(1, "queue.declare", queue=queue, arguments={"x-max-priority": 5})
    client.send_method(1, "queue.declare", queue=queue, arguments={"x-max-priority": 6})
    client.expect_channel_close(1, 406, 50, 10, "inequivalent arg 'x-max-priority'")


def test_a_requeued_message_takes_its_old_place_in_its_level(client: Client) -> None:
    queue = limited(client, x_max_priority=5)
    send(client, queue, [1, 1, 5, 5])
    taken = [client.get(1, queue) for _ in range(3)]
    assert [got.body for got in taken if got] == [b"2:5", b"3:5", b"0:1"]
    client.send_method(1, "basic.nack", delivery_tag=3, multiple=True, requeue=True)
    found = [client.get(1, queue, no_ack=True) for _ in range(4)]
    assert [(got.body, got.redelivered) for got in found if got] == [
        (b"2:5", True),
        (b"3:5", True),
        (b"0:1", True),
        (b"1:1", False),
    ]


def test_a_consumer_gets_what_is_highest_at_the_moment(client: Client, other: Client) -> None:
    queue = limited(client, x_max_priority=5)
    other.call(1, "basic.qos", prefetch_count=1)
    other.call(1, "basic.consume", queue=queue)
    fill(client, queue, b"first", priority=0)
    got = other.expect_message(channel=1)
    fill(client, queue, b"low", priority=1)
    fill(client, queue, b"high", priority=4)
    other.send_method(1, "basic.ack", delivery_tag=got.tag)
    got = other.expect_message(channel=1)
    assert got.body == b"high"
    other.send_method(1, "basic.ack", delivery_tag=got.tag)
    assert other.expect_message(channel=1).body == b"low"


def test_a_message_expires_behind_a_higher_one(client: Client) -> None:
    queue = limited(client, x_max_priority=255)
    fill(client, queue, b"stays", priority=255)
    for priority in (0, 3, 100):
        fill(client, queue, b"goes", b"goes", priority=priority, expiration="150")
    assert ready(client, queue) == 7
    seconds_until(lambda: ready(client, queue) == 1)
    assert drain(client, queue) == [b"stays"]


def test_a_queues_ttl_reaches_every_level(client: Client) -> None:
    queue = limited(client, x_max_priority=5, x_message_ttl=200)
    fill(client, queue, b"5", priority=5)
    got = client.get(1, queue)
    assert got is not None
    fill(client, queue, b"0", priority=0)
    fill(client, queue, b"4", priority=4)
    seconds_until(lambda: ready(client, queue) == 0)
    client.send_method(1, "basic.nack", delivery_tag=got.tag, requeue=True)
    seconds_until(lambda: ready(client, queue) == 0)


def test_a_full_queue_drops_the_oldest_of_the_lowest_level(client: Client) -> None:
    queue = limited(client, x_max_priority=5, x_max_length=3)
    send(client, queue, [5, 1, 1, 3, 5])
    assert drain(client, queue) == [b"0:5", b"4:5", b"3:3"]
    send(client, queue, [5, 5, 5, 0])
    assert drain(client, queue) == [b"0:5", b"1:5", b"2:5"]


def test_a_queue_full_of_bytes_drops_the_lowest_level_first(client: Client) -> None:
    queue = limited(client, x_max_priority=5, x_max_length_bytes=25)
    for priority in (1, 5, 5):
        fill(client, queue, b"%d" % priority * 10, priority=priority)
    assert drain(client, queue) == [b"5" * 10, b"5" * 10]


def test_a_full_queue_that_rejects_keeps_what_it_has(client: Client) -> None:
    queue = limited(client, x_max_priority=5, x_max_length=2, x_overflow="reject-publish")
    assert fill(client, queue, b"1", b"2", priority=0) == {1: "basic.ack", 2: "basic.ack"}
    assert fill(client, queue, b"3", priority=5) == {1: "basic.nack"}
    assert drain(client, queue) == [b"1", b"2"]


def test_a_purge_empties_every_level(client: Client) -> None:
    queue = limited(client, x_max_priority=10)
    send(client, queue, [0, 10, 3, 3, 7])
    assert client.get(1, queue) is not None
    assert client.call(1, "queue.purge", queue=queue).message_count == 4
    assert drain(client, queue) == []
    send(client, queue, [2, 4])
    assert drain(client, queue) == [b"1:4", b"0:2"]


def test_levels_larger_than_a_tail_come_from_disk_in_order(client: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=name, durable=True, arguments={"x-max-priority": 10})
    client.call(1, "confirm.select")
    bodies = {level: [b"%d.%d" % (level, n) + b"x" * 30_000 for n in range(60)] for level in (0, 4)}
    for low, high in zip(bodies[0], bodies[4], strict=True):
        client.publish(1, "", name, low, delivery_mode=2)
        client.publish(1, "", name, high, delivery_mode=2, priority=4)
    client.expect_confirms(1, 120)
    client.call(2, "channel.open")
    client.call(2, "basic.consume", queue=name, no_ack=True)
    got = [message.body for message in client.expect_messages(120, 2)]
    assert got == bodies[4] + bodies[0]


def test_what_expires_behind_a_higher_message_is_dead_lettered(client: Client) -> None:
    dead = limited(client)
    queue = limited(
        client,
        x_max_priority=5,
        x_message_ttl=100,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key=dead,
    )
    fill(client, queue, b"low", priority=1)
    fill(client, queue, b"high", priority=4)
    seconds_until(lambda: ready(client, dead) == 2)
    assert sorted(drain(client, dead)) == [b"high", b"low"]
    full = limited(
        client,
        x_max_priority=5,
        x_max_length=1,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key=dead,
    )
    fill(client, full, b"high", b"higher", priority=3)
    fill(client, full, b"low", priority=0)
    seconds_until(lambda: ready(client, dead) == 2)
    assert drain(client, dead) == [b"high", b"low"]
    assert drain(client, full) == [b"higher"]


def test_a_delivery_limit_counts_in_every_level(client: Client) -> None:
    queue = limited(client, x_max_priority=5, x_delivery_limit=2)
    fill(client, queue, b"x", priority=3)
    for back in (None, 1, 2):
        got = client.get(1, queue)
        assert got is not None
        assert got.properties.get("headers", {}).get("x-delivery-count") == back
        client.send_method(1, "basic.nack", delivery_tag=got.tag, requeue=True)
    assert client.get(1, queue) is None


def test_a_purge_of_every_level_tells_publishers_who_wait_for_acks(
    client: Client, other: Client
) -> None:
    queue = limited(client, x_max_priority=5, x_confirm_on="ack")
    other.call(1, "confirm.select")
    for priority in (1, 5, 0, 3):
        other.publish(1, "", queue, b"x", priority=priority)
    seconds_until(lambda: ready(client, queue) == 4)
    got = client.get(1, queue)
    assert got is not None
    assert client.call(1, "queue.purge", queue=queue).message_count == 3
    client.send_method(1, "basic.ack", delivery_tag=got.tag)
    told = other.expect_confirms(1, 4)
    assert told == {1: "basic.nack", 2: "basic.ack", 3: "basic.nack", 4: "basic.nack"}
