"""Limits of a queue: its own life, the age and the number of its messages, one active consumer."""

import uuid

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client


def declare(client: Client, **arguments: object) -> str:
    """A new queue with these x-arguments (`max_length` for x-max-length)."""
    name = f"limits-{uuid.uuid4().hex[:8]}"
    table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    client.call(1, "queue.declare", queue=name, arguments=table)
    return name


def count(client: Client, queue: str) -> int:
    found: int = client.call(1, "queue.declare", queue=queue, passive=True).message_count
    return found


def bodies(client: Client, queue: str) -> list[bytes]:
    """Every ready message's body, taken out."""
    found = []
    while (got := client.get(1, queue, no_ack=True)) is not None:
        found.append(got.body)
    return found


def await_empty(client: Client, queue: str) -> None:
    """Asks, a round trip each time, until the queue is empty. Fails after a bounded number."""
    for _ in range(20_000):
        if count(client, queue) == 0:
            return
    raise AssertionError(f"{queue} still holds {count(client, queue)} messages")


def test_it_keeps_the_newest_messages_up_to_the_length(client: Client) -> None:
    queue = declare(client, max_length=3)
    client.send(b"".join(raw.publish(1, "", queue, b"%d" % n) for n in range(10)))
    assert bodies(client, queue) == [b"7", b"8", b"9"]


def test_it_keeps_the_newest_messages_up_to_the_bytes(client: Client) -> None:
    queue = declare(client, max_length_bytes=4000)
    client.send(b"".join(raw.publish(1, "", queue, b"%d" % n * 1000) for n in range(1, 8)))
    kept = bodies(client, queue)
    assert [body[:1] for body in kept] == [b"4", b"5", b"6", b"7"]


def test_it_holds_nothing_at_length_zero_but_serves_who_waits(client: Client) -> None:
    queue = declare(client, max_length=0)
    client.publish(1, "", queue, b"nobody")
    assert count(client, queue) == 0
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    client.publish(1, "", queue, b"somebody")
    assert client.expect_message(channel=1).body == b"somebody"


def test_it_counts_ready_messages_only(client: Client) -> None:
    queue = declare(client, max_length=1)
    client.call(1, "basic.qos", prefetch_count=1)
    client.call(1, "basic.consume", queue=queue)
    client.publish(1, "", queue, b"taken")
    client.expect_message(channel=1)
    client.publish(1, "", queue, b"ready")
    assert count(client, queue) == 1


def test_it_nacks_what_a_full_queue_refuses(client: Client) -> None:
    queue = declare(client, max_length=2, overflow="reject-publish")
    client.call(1, "confirm.select")
    client.send(b"".join(raw.publish(1, "", queue, b"%d" % n) for n in range(4)))
    answers = client.expect_confirms(1, 4)
    assert answers == {1: "basic.ack", 2: "basic.ack", 3: "basic.nack", 4: "basic.nack"}
    assert bodies(client, queue) == [b"0", b"1"]


def test_it_forgets_messages_older_than_the_queue_allows(client: Client) -> None:
    queue = declare(client, message_ttl=50)
    client.publish(1, "", queue, b"old")
    assert count(client, queue) == 1
    await_empty(client, queue)


@pytest.mark.parametrize(("own", "of_queue"), [("50", 60_000), ("60000", 50)])
def test_it_takes_the_smaller_of_both_ages(client: Client, own: str, of_queue: int) -> None:
    queue = declare(client, message_ttl=of_queue)
    client.publish(1, "", queue, b"x", expiration=own)
    assert count(client, queue) == 1
    await_empty(client, queue)


def test_it_lets_a_message_expire_in_a_queue_without_limits(client: Client) -> None:
    queue = declare(client)
    client.publish(1, "", queue, b"x", expiration="50")
    assert count(client, queue) == 1
    await_empty(client, queue)
    client.publish(1, "", queue, b"stays")
    assert bodies(client, queue) == [b"stays"]


def test_it_never_delivers_what_has_expired(client: Client) -> None:
    queue = declare(client, message_ttl=0)
    client.publish(1, "", queue, b"late")
    assert count(client, queue) == 0
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    client.publish(1, "", queue, b"in time")
    assert client.expect_message(channel=1).body == b"in time"


def test_it_ends_a_queue_that_nobody_uses(client: Client) -> None:
    queue = declare(client, expires=100)
    client.call(1, "basic.consume", queue=queue, consumer_tag="c")
    client.call(1, "basic.cancel", consumer_tag="c")
    # A declare would be a use; a message is none.
    for _ in range(20_000):
        client.publish(1, "", queue, b"x", mandatory=True)
        client.send_method(1, "exchange.declare", exchange="amq.direct", passive=True)
        if client.read_method().name == "basic.return":
            return
    raise AssertionError("the queue is still there")


def test_it_serves_one_active_consumer_and_then_the_next(client: Client) -> None:
    queue = declare(client, single_active_consumer=True)
    for tag in ("first", "second"):
        client.call(1, "basic.consume", queue=queue, consumer_tag=tag, no_ack=True)
    client.send(b"".join(raw.publish(1, "", queue, b"%d" % n) for n in range(4)))
    assert {m.method.consumer_tag for m in client.expect_messages(4, 1)} == {"first"}
    client.call(1, "basic.cancel", consumer_tag="first")
    client.publish(1, "", queue, b"x")
    assert client.expect_message(channel=1).method.consumer_tag == "second"


def test_it_gives_nothing_by_get_where_one_consumer_is_active(client: Client) -> None:
    queue = declare(client, single_active_consumer=True)
    client.send_method(1, "basic.get", queue=queue)
    client.expect_channel_close(1, 405, 60, 70)
