"""Deliveries that nobody acknowledges close their channel in the end, and never before."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.wire import ack_timeouts
from broker.wire.ack_timeouts import timeout_of
from tests.amqp.limited_queues import fill, limited, ready, seconds_until
from tests.amqp.raw import Client
from tests.amqp.wired import Wired
from tests.conftest import Make
from tests.control.test_real_broker import control
from tests.promptness import LateError, came_within, in_time

TEXT = r"^PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out\. "


def times_out(client: Client, milliseconds: int, since: float) -> None:
    """The channel must be closed for a timeout that began then."""
    client.expect_channel_close(1, 406, 0, 0, TEXT + f"Timeout value used: {milliseconds} ms")
    try:
        came_within(since, milliseconds / 1000, milliseconds / 1000 * 1.25 + 1.5)
    except LateError:
        client.call(1, "channel.open")  # for the next try
        raise


@in_time
def test_a_delivery_left_unacked_closes_its_channel_and_comes_back(
    client: Client, other: Client
) -> None:
    queue = limited(client, x_consumer_timeout=400)
    other.call(1, "basic.consume", queue=queue)
    fill(client, queue, b"x")
    since = time.monotonic()
    assert other.expect_message(channel=1).body == b"x"
    times_out(other, 400, since)
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    assert got.redelivered
    other.call(1, "channel.open")
    other.fence(1)


@in_time
def test_a_message_that_was_got_times_out_too(client: Client) -> None:
    queue = limited(client, x_consumer_timeout=300)
    fill(client, queue, b"x")
    since = time.monotonic()
    assert client.get(1, queue) is not None
    times_out(client, 300, since)


@in_time
def test_the_delivery_of_a_cancelled_consumer_times_out_too(client: Client) -> None:
    queue = limited(client, x_consumer_timeout=300)
    fill(client, queue, b"x")
    since = time.monotonic()
    client.call(1, "basic.consume", queue=queue, consumer_tag="c")
    client.expect_message(channel=1)
    client.call(1, "basic.cancel", consumer_tag="c")
    times_out(client, 300, since)


@in_time
def test_who_acks_in_time_is_left_alone(client: Client, amqp_address: tuple[str, int]) -> None:
    queue, clock = limited(client, x_consumer_timeout=400), limited(client, x_message_ttl=250)
    with Client.open(amqp_address) as other:
        other.call(1, "basic.consume", queue=queue)
        for number in range(5):
            since = time.monotonic()
            fill(client, queue, b"%d" % number)
            fill(client, clock, b"tick")
            try:
                got = other.expect_message(channel=1)
                seconds_until(lambda: ready(client, clock) == 0)
                other.send_method(1, "basic.ack", delivery_tag=got.tag)
                other.fence(1)
            except AssertionError:
                came_within(since, 0, 0.4)
                raise


@in_time
def test_the_oldest_open_delivery_counts(client: Client, other: Client) -> None:
    queue = limited(client, x_consumer_timeout=400)
    other.call(1, "basic.consume", queue=queue)
    since = time.monotonic()
    fill(client, queue, b"old")
    assert other.expect_message(channel=1).body == b"old"
    for _ in range(3):
        fill(client, queue, b"new")
        got = other.expect_message(channel=1)
        other.send_method(1, "basic.ack", delivery_tag=got.tag)
    times_out(other, 400, since)


@in_time
def test_queues_of_one_channel_have_their_own_timeouts(client: Client, other: Client) -> None:
    quick, slow = limited(client, x_consumer_timeout=300), limited(client, x_consumer_timeout=60000)
    never = limited(client)
    for queue in (never, slow, quick):
        other.call(1, "basic.consume", queue=queue, consumer_tag=queue)
    for queue in (never, slow):
        fill(client, queue, b"x")
        other.expect_message(channel=1)
    seconds_until(lambda: ready(client, never) == 0)
    fill(client, quick, b"x")
    since = time.monotonic()
    other.expect_message(channel=1)
    times_out(other, 300, since)
    assert [ready(client, queue) for queue in (never, slow, quick)] == [1, 1, 1]


@pytest.mark.parametrize("arguments", [{}, {"x_consumer_timeout": 0}])
def test_without_a_timeout_nothing_is_ever_overdue(
    client: Client, other: Client, arguments: dict[str, Any]
) -> None:
    queue, clock = limited(client, **arguments), limited(client, x_message_ttl=500)
    other.call(1, "basic.consume", queue=queue)
    fill(client, queue, b"x")
    got = other.expect_message(channel=1)
    fill(client, clock, b"tick")
    seconds_until(lambda: ready(client, clock) == 0)
    other.send_method(1, "basic.ack", delivery_tag=got.tag)
    other.fence(1)


def test_who_wants_no_acks_is_never_overdue(client: Client, other: Client) -> None:
    queue, clock = limited(client, x_consumer_timeout=100), limited(client, x_message_ttl=400)
    other.call(1, "basic.consume", queue=queue, no_ack=True)
    fill(client, queue, b"x")
    other.expect_message(channel=1)
    fill(client, clock, b"tick")
    seconds_until(lambda: ready(client, clock) == 0)
    other.fence(1)


@pytest.mark.parametrize("value", [-1, "1000", True, 1.5, None])
def test_it_refuses_a_timeout_that_is_none(client: Client, name: str, value: Any) -> None:
    client.send_method(1, "queue.declare", queue=name, arguments={"x-consumer-timeout": value})
    client.expect_channel_close(1, 406, 50, 10, "invalid arg 'x-consumer-timeout' for queue")


@in_time
def test_the_setting_holds_where_the_queue_says_nothing(make_broker: Make) -> None:
    broker = make_broker(consumer_timeout="300ms")
    with (
        Client.open((broker.host, broker.amqp_port)) as client,
        Client.open((broker.host, broker.amqp_port)) as other,
    ):
        plain, free = limited(client), limited(client, x_consumer_timeout=0)
        other.call(1, "basic.consume", queue=free)
        fill(client, free, b"x")
        other.expect_message(channel=1)
        fill(client, plain, b"x")
        since = time.monotonic()
        assert client.get(1, plain) is not None
        times_out(client, 300, since)
        other.fence(1)


@in_time
def test_a_new_setting_holds_for_channels_that_are_open(make_broker: Make, tmp_path: Path) -> None:
    file = tmp_path / "leveret.ini"
    file.write_text("[amqp]\nconsumer_timeout = 0\n")
    broker = make_broker(config=file)
    with Client.open((broker.host, broker.amqp_port)) as client:
        queue = limited(client)
        fill(client, queue, b"x")
        assert client.get(1, queue) is not None
        file.write_text("[amqp]\nconsumer_timeout = 300 ms\n")
        since = time.monotonic()
        broker.signal(signal.SIGHUP)
        times_out(client, 300, since)


@in_time
async def test_a_policy_sets_the_timeout_of_consumers_that_are_there(make_broker: Make) -> None:
    broker = make_broker()
    loop = asyncio.get_running_loop()
    with Client.open((broker.host, broker.amqp_port)) as client:
        queue = limited(client)
        fill(client, queue, b"x")
        client.call(1, "basic.consume", queue=queue)
        client.expect_message(channel=1)
        async with control(broker) as door:
            args: dict[str, Any] = {"vhost": "/", "name": "patience", "pattern": f"^{queue}$"}
            await door.call("policy.put", **args, definition={"consumer-timeout": 600_000})
            row = (await door.call("list", noun="consumers", vhost="/"))["items"][0]
            assert row["consumer_timeout"] == 600_000
            since = time.monotonic()
            await door.call("policy.put", **args, definition={"consumer-timeout": 300})
        await loop.run_in_executor(None, times_out, client, 300, since)


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    wired = Wired(tmp_path)
    yield wired
    wired.stop()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whose timeout was asked for, each time."""
    asked = []

    def look(queue: Any, default_s: float) -> int:
        asked.append(queue)
        return timeout_of(queue, default_s)

    monkeypatch.setattr(ack_timeouts, "timeout_of", look)
    return asked


def test_a_policy_looks_at_each_of_its_queues_consumers_not_at_all_for_each(
    wired: Wired, looks: list[Any]
) -> None:
    queue = wired.queue()
    for number in range(1000):
        wired.consume(queue, str(number))
    looks.clear()
    queue.reconfigure({"x-consumer-timeout": 60000})
    assert 1000 <= len(looks) < 5000


def test_a_consumer_that_comes_is_looked_at_not_those_before_it(
    wired: Wired, looks: list[Any]
) -> None:
    queue = wired.queue(consumer_timeout=60000)
    for number in range(1000):
        wired.consume(queue, str(number))
    assert 1000 <= len(looks) < 5000
