"""Queues that hold so many messages and no more."""

import uuid
from typing import Any

import pytest

from tests.amqp.limited_queues import drain, fill, limited, ready, seconds_until
from tests.amqp.raw import Client


def test_the_oldest_messages_make_room(client: Client) -> None:
    queue = limited(client, x_max_length=3)
    told = fill(client, queue, b"1", b"2", b"3", b"4", b"5")
    assert set(told.values()) == {"basic.ack"}
    assert drain(client, queue) == [b"3", b"4", b"5"]


def test_a_limit_of_no_bytes_leaves_room_for_no_body(client: Client) -> None:
    queue = limited(client, x_max_length_bytes=0)
    assert set(fill(client, queue, b"1", b"22").values()) == {"basic.ack"}
    assert drain(client, queue) == []
    refusing = limited(client, x_max_length_bytes=0, x_overflow="reject-publish")
    assert fill(client, refusing, b"1") == {1: "basic.nack"}
    assert fill(client, refusing, b"") == {1: "basic.ack"}
    assert drain(client, refusing) == [b""]


def test_the_length_counts_ready_messages_only(client: Client) -> None:
    queue = limited(client, x_max_length=2)
    fill(client, queue, b"1", b"2")
    held = [client.get(1, queue), client.get(1, queue)]
    fill(client, queue, b"3", b"4")
    assert ready(client, queue) == 2
    assert all(held)
    client.send_method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    seconds_until(lambda: ready(client, queue) == 2)
    assert drain(client, queue) == [b"3", b"4"]


def test_a_full_queue_refuses_new_messages_when_told_so(client: Client) -> None:
    queue = limited(client, x_max_length=2, x_overflow="reject-publish")
    told = fill(client, queue, b"1", b"2", b"3", b"4")
    assert [told[tag] for tag in range(1, 5)] == ["basic.ack"] * 2 + ["basic.nack"] * 2
    assert drain(client, queue) == [b"1", b"2"]
    assert fill(client, queue, b"5") == {1: "basic.ack"}


def test_a_refusal_is_silent_without_confirms(client: Client) -> None:
    queue = limited(client, x_max_length=1, x_overflow="reject-publish")
    for body in (b"1", b"2"):
        client.publish(1, "", queue, body, mandatory=True)
    client.fence(1)
    assert drain(client, queue) == [b"1"]


def test_a_refusal_of_one_queue_is_a_nack_for_all(client: Client) -> None:
    full = limited(client, x_max_length=1, x_overflow="reject-publish")
    roomy = limited(client)
    exchange = f"limits-{uuid.uuid4().hex[:8]}"
    client.call(1, "exchange.declare", exchange=exchange, type="fanout")
    for queue in (full, roomy):
        client.call(1, "queue.bind", queue=queue, exchange=exchange)
    client.call(1, "confirm.select")
    for body in (b"1", b"2"):
        client.publish(1, exchange, "", body)
    told = client.expect_confirms(1, 2)
    assert told == {1: "basic.ack", 2: "basic.nack"}
    assert drain(client, full) == [b"1"]
    assert drain(client, roomy) == [b"1", b"2"]


def test_many_confirms_and_refusals_are_each_told_once(client: Client) -> None:
    queue = limited(client, x_max_length=250, x_overflow="reject-publish")
    told = fill(client, queue, *[b"x"] * 500, delivery_mode=2)
    assert sorted(told) == list(range(1, 501))
    assert list(told.values()).count("basic.nack") == 250


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("x-message-ttl", 1000, 2000),
        ("x-expires", 10_000, 20_000),
        ("x-max-length", 5, 6),
        ("x-overflow", "drop-head", "reject-publish"),
        ("x-max-length-bytes", 5, None),
    ],
)
def test_a_limit_cannot_be_changed_by_declaring_again(
    client: Client, name: str, first: Any, second: Any
) -> None:
    queue = limited(client, **{name: first})
    arguments = {} if second is None else {name: second}
    client.send_method(1, "queue.declare", queue=queue, arguments=arguments)
    client.expect_channel_close(1, 406, 50, 10, f"inequivalent arg '{name}' for queue '{queue}'")
    client.call(1, "channel.open")
    client.call(1, "queue.declare", queue=queue, arguments={name: first})


def test_the_oldest_messages_make_room_by_bytes(client: Client) -> None:
    queue = limited(client, x_max_length_bytes=10)
    fill(client, queue, b"a" * 4, b"b" * 4, b"c" * 4, b"d")
    assert drain(client, queue) == [b"b" * 4, b"c" * 4, b"d"]
    fill(client, queue, b"e" * 11)
    assert drain(client, queue) == []
    fill(client, queue, b"f" * 10, b"")
    assert drain(client, queue) == [b"f" * 10, b""]


def test_a_full_queue_refuses_by_bytes(client: Client) -> None:
    queue = limited(client, x_max_length_bytes=8, x_overflow="reject-publish")
    told = fill(client, queue, b"a" * 4, b"b" * 4, b"c" * 4)
    assert told[1] == told[2] == "basic.ack"
    assert told[3] == "basic.nack"
    assert drain(client, queue) == [b"a" * 4, b"b" * 4]
