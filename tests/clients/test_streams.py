"""Streams through pika and aio-pika, as their users write it."""

import datetime

import aio_pika
import pika
from pika.adapters.blocking_connection import BlockingChannel

STREAM = {"x-queue-type": "stream"}


def declare(channel: BlockingChannel, name: str, count: int) -> None:
    channel.queue_declare(name, durable=True, arguments=STREAM)
    channel.confirm_delivery()
    for number in range(count):
        properties = pika.BasicProperties(
            headers={"x-stream-filter-value": "even" if number % 2 == 0 else "odd"}
        )
        channel.basic_publish("", name, b"%d" % number, properties)


def test_pika_reads_a_stream(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, 20)
    channel.basic_qos(prefetch_count=5)
    for _ in range(2):
        found = []
        arguments = {"x-stream-offset": 3, "x-stream-filter": ["even"]}
        for method, properties, body in channel.consume(name, arguments=arguments):
            assert properties.headers["x-stream-offset"] == int(body)
            channel.basic_ack(method.delivery_tag)
            found.append(int(body))
            if len(found) == 8:
                break
        channel.cancel()
        assert found == list(range(4, 20, 2))
    channel.queue_delete(name)


def test_pika_begins_at_a_time(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, 3)
    channel.basic_qos(prefetch_count=5)
    hour_ago = datetime.datetime.now() - datetime.timedelta(hours=1)
    for start in (hour_ago, "1h", "first"):
        for method, _, body in channel.consume(name, arguments={"x-stream-offset": start}):
            assert (method.redelivered, body) == (False, b"0")
            break
        channel.cancel()
    channel.queue_delete(name)


async def test_aio_pika_reads_a_stream(aio: aio_pika.abc.AbstractConnection, name: str) -> None:
    channel = await aio.channel()
    await channel.set_qos(prefetch_count=10)
    stream = await channel.declare_queue(name, durable=True, arguments=STREAM)
    for number in range(10):
        await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), name)
    found = []
    async with stream.iterator(arguments={"x-stream-offset": "first"}) as messages:
        async for message in messages:
            async with message.process():
                found.append(message.headers["x-stream-offset"])
            if len(found) == 10:
                break
    assert found == list(range(10))
    await stream.delete(if_empty=False)
