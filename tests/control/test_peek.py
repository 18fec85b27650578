"""`queue.peek` against a real broker: it shows what is ready and leaves everything as it was."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.test_real_broker import connect, control

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


@pytest.fixture
def channel(shared_broker: Appliance) -> Iterator[BlockingChannel]:
    connection = connect(shared_broker)
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


def filled(channel: BlockingChannel, count: int, **arguments: Any) -> str:
    """A durable queue with persistent messages `0`, `1`, ..."""
    name = f"peek.{uuid.uuid4().hex[:12]}"
    channel.queue_declare(name, durable=True, arguments=arguments)
    for number in range(count):
        channel.basic_publish("", name, b"%d" % number, PERSISTENT)
    return name


async def bodies(client: BrokerClient, name: str, count: int = 100, **args: Any) -> list[bytes]:
    rows = await client.call("queue.peek", vhost="/", name=name, count=count, **args)
    return [row["payload"] for row in rows]


async def test_it_shows_messages_and_changes_neither_marks_counts_nor_order(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    name = filled(channel, 5)
    key = {"noun": "queues", "vhost": "/", "name": name}
    before = (await client.call("item", **key))["message_stats"]
    assert await bodies(client, name, 3) == [b"0", b"1", b"2"]
    assert await bodies(client, name) == [b"0", b"1", b"2", b"3", b"4"]
    after = await client.call("item", **key)
    assert after["message_stats"] == before
    assert (after["messages_ready"], after["messages_unacknowledged"]) == (5, 0)
    for number in range(5):
        method, _, body = channel.basic_get(name)
        assert (body, method.redelivered) == (b"%d" % number, False)


async def test_a_message_looked_at_before_a_restart_is_not_marked_after_it(
    make_broker: Make,
) -> None:
    broker = make_broker()
    channel = connect(broker).channel()
    channel.confirm_delivery()
    name = filled(channel, 3)
    async with control(broker) as client:
        assert await bodies(client, name) == [b"0", b"1", b"2"]
    broker.kill()
    broker.start()
    channel = connect(broker).channel()
    method, _, body = channel.basic_get(name)
    assert (body, method.redelivered) == (b"0", False)


async def test_it_shows_what_came_back_at_its_place_and_not_what_a_consumer_holds(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    name = filled(channel, 6)
    tags = [channel.basic_get(name)[0].delivery_tag for _ in range(4)]
    channel.basic_ack(tags[2])
    channel.basic_nack(tags[3], requeue=True)
    channel.basic_nack(tags[0], requeue=True)
    channel.queue_declare(name, passive=True)
    rows = await client.call("queue.peek", vhost="/", name=name, count=10)
    assert [(row["payload"], row["redelivered"]) for row in rows] == [
        (b"0", True),
        (b"3", True),
        (b"4", False),
        (b"5", False),
    ]


async def test_it_shows_the_highest_priority_first(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    name = filled(channel, 0, **{"x-max-priority": 5})
    for priority in (1, 5, 0, 5, 3):
        channel.basic_publish("", name, b"%d" % priority, pika.BasicProperties(priority=priority))
    assert await bodies(client, name) == [b"5", b"5", b"3", b"1", b"0"]


async def test_it_reads_from_disk_what_is_no_longer_in_memory(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    name = filled(channel, 0)
    for number in range(300):
        channel.basic_publish("", name, b"%03d" % number * 3000, PERSISTENT)
    rows = await client.call("queue.peek", vhost="/", name=name, count=300, truncate=3)
    assert [row["payload"] for row in rows] == [b"%03d" % number for number in range(300)]
    assert {row["payload_bytes"] for row in rows} == {9000}


async def test_it_shows_the_large_body_that_several_queues_share(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    names = [filled(channel, 0) for _ in range(2)]
    for name in names:
        channel.queue_bind(name, "amq.topic", names[0])
    body = b"large" * 20_000
    channel.basic_publish("amq.topic", names[0], body, PERSISTENT)
    for name in names:
        assert await bodies(client, name) == [body]
        channel.queue_delete(name)


async def test_it_passes_over_messages_whose_time_is_over(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    name = filled(channel, 1)
    channel.basic_publish("", name, b"brief", pika.BasicProperties(expiration="1"))
    channel.basic_publish("", name, b"lasting")
    # The queue drops an expired message when it is at its head; this one is behind another.
    assert b"brief" not in (await bodies(client, name))[2:]
    channel.connection.sleep(0.05)
    assert await bodies(client, name) == [b"0", b"lasting"]


async def test_it_looks_into_a_paused_queue_and_refuses_a_stream(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    name = filled(channel, 2)
    await client.call("queue.pause", vhost="/", name=name)
    assert await bodies(client, name) == [b"0", b"1"]
    stream = filled(channel, 1, **{"x-queue-type": "stream"})
    with pytest.raises(BrokerError, match="is a stream: use"):
        await bodies(client, stream)
    with pytest.raises(BrokerError, match="count must be from 0 to 1000"):
        await bodies(client, name, 1001)
