"""Messages and queues that go by themselves: when, and never before."""

import time
from collections.abc import Callable

import pytest

from tests.amqp.limited_queues import drain, fill, limited, ready, seconds_until
from tests.amqp.raw import Client
from tests.promptness import came_within, in_time


@in_time
def test_messages_expire_after_the_queues_ttl_and_not_before(client: Client) -> None:
    queue = limited(client, x_message_ttl=300)
    started = time.monotonic()
    fill(client, queue, b"1", b"2", b"3")
    count = ready(client, queue)
    came_within(started, 0, 0.3)
    assert count == 3
    seconds_until(lambda: ready(client, queue) == 0)
    came_within(started, 0.3, 0.8)
    assert client.get(1, queue) is None


@in_time
def test_a_message_expires_by_its_own_expiration(client: Client) -> None:
    queue = limited(client)
    started = time.monotonic()
    fill(client, queue, b"1", b"2", expiration="250")
    got = client.get(1, queue, no_ack=True)
    count = ready(client, queue)
    came_within(started, 0, 0.25)
    assert got is not None
    assert got.properties == {"expiration": "250"}
    assert count == 1
    seconds_until(lambda: ready(client, queue) == 0)
    came_within(started, 0.25, 0.8)


def held_by_a_consumer(client: Client, queue: str) -> None:
    client.call(1, "basic.consume", queue=queue, consumer_tag="short")
    client.send_method(1, "basic.ack", delivery_tag=client.expect_message(channel=1).tag)
    client.call(1, "basic.cancel", consumer_tag="short")


def purged(client: Client, queue: str) -> None:
    client.call(1, "queue.purge", queue=queue)


@pytest.mark.parametrize("leave", [held_by_a_consumer, purged])
def test_a_message_expires_in_time_where_one_with_more_time_was_before(
    client: Client, leave: Callable[[Client, str], None]
) -> None:
    queue = limited(client)
    fill(client, queue, b"long", expiration="3600000")
    leave(client, queue)
    fill(client, queue, b"short", expiration="100")
    seconds_until(lambda: ready(client, queue) == 0)


def test_a_message_expires_in_time_before_one_of_lower_priority(client: Client) -> None:
    queue = limited(client, x_max_priority=5)
    fill(client, queue, b"long", expiration="3600000", priority=0)
    fill(client, queue, b"short", expiration="100", priority=5)
    seconds_until(lambda: ready(client, queue) == 1)


@pytest.mark.parametrize("ttl", [2**62, 2**63 - 1])
def test_no_ttl_is_too_long_to_wait_for(client: Client, ttl: int) -> None:
    queue = limited(client, x_message_ttl=ttl)
    fill(client, queue, b"stays", b"stays too")
    assert drain(client, queue) == [b"stays", b"stays too"]


@pytest.mark.parametrize("expiration", ["0", "-0"])
def test_a_message_without_time_is_not_kept(client: Client, expiration: str) -> None:
    """A zero has no sign, as RabbitMQ reads it."""
    queue = limited(client)
    fill(client, queue, b"gone", expiration=expiration)
    seconds_until(lambda: ready(client, queue) == 0)


@pytest.mark.parametrize(("of_queue", "own"), [(200, "60000"), (60000, "200")])
@in_time
def test_the_shorter_of_two_ttls_counts(client: Client, of_queue: int, own: str) -> None:
    queue = limited(client, x_message_ttl=of_queue)
    fill(client, queue, b"x", expiration=own)
    started = time.monotonic()
    seconds_until(lambda: ready(client, queue) == 0)
    came_within(started, 0, 1.0)


def test_a_message_that_expired_behind_another_is_never_delivered(client: Client) -> None:
    queue = limited(client)
    fill(client, queue, b"stays")
    fill(client, queue, b"expires", expiration="100")
    fill(client, queue, b"stays too")
    other = limited(client, x_message_ttl=150)
    fill(client, other, b"clock")
    seconds_until(lambda: ready(client, other) == 0)
    assert drain(client, queue) == [b"stays", b"stays too"]


@in_time
def test_an_unacked_message_does_not_expire_but_a_requeued_one_does(client: Client) -> None:
    queue, other = limited(client, x_message_ttl=200), limited(client, x_message_ttl=300)
    started = time.monotonic()
    fill(client, queue, b"x")
    got = client.get(1, queue)
    came_within(started, 0, 0.2)
    assert got is not None
    fill(client, other, b"clock")
    seconds_until(lambda: ready(client, other) == 0)
    client.send_method(1, "basic.nack", delivery_tag=got.tag, requeue=True)
    seconds_until(lambda: ready(client, queue) == 0)
    assert client.get(1, queue) is None


def test_a_ttl_of_zero_keeps_nothing(client: Client) -> None:
    queue = limited(client, x_message_ttl=0)
    fill(client, queue, b"x")
    assert client.get(1, queue) is None
    plain = limited(client)
    fill(client, plain, b"x", expiration="0")
    assert client.get(1, plain) is None


def test_a_ttl_of_zero_still_reaches_a_waiting_consumer(client: Client, other: Client) -> None:
    queue = limited(client, x_message_ttl=0)
    other.call(1, "basic.consume", queue=queue, no_ack=True)
    fill(client, queue, b"x")
    assert other.expect_message(channel=1).body == b"x"


@pytest.mark.parametrize("way", ["of the queue", "its own", "behind a longer one"])
def test_a_message_without_time_does_not_wait_for_a_consumer_to_have_room(
    client: Client, other: Client, way: str
) -> None:
    queue = limited(client, **({"x_message_ttl": 0} if way == "of the queue" else {}))
    own = {} if way == "of the queue" else {"expiration": "0"}
    other.call(1, "basic.qos", prefetch_count=1)
    other.call(1, "basic.consume", queue=queue)
    if way == "behind a longer one":
        client.publish(1, "", queue, b"taken")
        client.publish(1, "", queue, b"waits", expiration="60000")
    fill(client, queue, b"1", b"2", **own)
    first = other.expect_message(channel=1)
    if way == "behind a longer one":
        assert ready(client, queue) == 3
        other.send_method(1, "basic.ack", delivery_tag=first.tag)
        first = other.expect_message(channel=1)
        assert first.body == b"waits"
    seconds_until(lambda: ready(client, queue) == 0)
    other.send_method(1, "basic.ack", delivery_tag=first.tag)
    fill(client, queue, b"last")
    assert other.expect_message(channel=1).body == b"last"


def test_a_large_ttl_expires_nothing(client: Client) -> None:
    queue = limited(client, x_message_ttl=2**31 - 1)
    fill(client, queue, b"1", expiration=str(2**31))
    assert ready(client, queue) == 1


@in_time
def test_an_unused_queue_expires(client: Client) -> None:
    started = time.monotonic()
    queue = limited(client, x_expires=300)
    other = limited(client)

    def gone() -> bool:
        client.send_method(1, "queue.bind", queue=queue, exchange="amq.fanout", routing_key="")
        got = client.read_method()
        if got.name == "queue.bind-ok":
            return False
        assert got.reply_code == 404
        client.send_method(1, "channel.close-ok")
        client.call(1, "channel.open")
        return True

    seconds_until(gone)
    came_within(started, 0.3, 1.0)
    assert ready(client, other) == 0


def test_a_queue_with_a_consumer_does_not_expire(client: Client, other: Client) -> None:
    queue, clock = limited(client, x_expires=150), limited(client, x_message_ttl=400)
    other.call(1, "basic.consume", queue=queue, consumer_tag="c")
    fill(client, clock, b"clock")
    seconds_until(lambda: ready(client, clock) == 0)
    client.publish(1, "", queue, b"still here", mandatory=True)
    assert other.expect_message(channel=1).body == b"still here"


def test_gets_and_declares_keep_a_queue_from_expiring(client: Client) -> None:
    queue, clock = limited(client, x_expires=400), limited(client, x_message_ttl=900)
    fill(client, clock, b"clock")
    while ready(client, clock):
        assert client.get(1, queue) is None
    client.call(1, "queue.declare", queue=queue, arguments={"x-expires": 400})


def test_passive_declares_keep_a_queue_from_expiring(client: Client) -> None:
    queue, clock = limited(client, x_expires=400), limited(client, x_message_ttl=900)
    fill(client, clock, b"clock")
    while ready(client, clock):
        client.call(1, "queue.declare", queue=queue, passive=True)
    client.call(1, "queue.bind", queue=queue, exchange="amq.fanout", routing_key="")
