"""Daily work through aio-pika."""

import asyncio
import random

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

SIZES = [0, 1, 131_063, 131_064, 131_065, 131_073, 1 << 20, 20 << 20]


@pytest.mark.parametrize("size", SIZES)
async def test_it_carries_bodies_of_any_size(aio: AbstractConnection, size: int) -> None:
    data = random.Random(size).randbytes(size)
    channel = await aio.channel()
    queue = await channel.declare_queue(exclusive=True)
    await channel.default_exchange.publish(
        aio_pika.Message(data, delivery_mode=aio_pika.DeliveryMode.PERSISTENT), queue.name
    )
    message = await queue.get(timeout=30)
    await message.ack()
    assert message.body == data


async def test_it_confirms_many_at_once(aio: AbstractConnection) -> None:
    channel = await aio.channel(publisher_confirms=True)
    queue = await channel.declare_queue(exclusive=True, durable=True)
    await asyncio.gather(
        *(
            channel.default_exchange.publish(
                aio_pika.Message(str(number).encode(), delivery_mode=2), queue.name
            )
            for number in range(500)
        )
    )
    assert (
        await channel.declare_queue(queue.name, passive=True)
    ).declaration_result.message_count == 500


async def test_it_returns_what_reaches_nobody(aio: AbstractConnection, name: str) -> None:
    channel = await aio.channel(on_return_raises=True)
    with pytest.raises(aio_pika.exceptions.DeliveryError):
        await channel.default_exchange.publish(aio_pika.Message(b"x"), name, mandatory=True)


async def test_it_iterates_over_a_queue_with_prefetch(aio: AbstractConnection) -> None:
    channel = await aio.channel()
    await channel.set_qos(prefetch_count=10)
    queue = await channel.declare_queue(exclusive=True)
    for number in range(100):
        await channel.default_exchange.publish(aio_pika.Message(str(number).encode()), queue.name)
    seen = []
    async with queue.iterator(timeout=60) as messages:
        async for message in messages:
            async with message.process():
                seen.append(int(message.body))
            if len(seen) == 100:
                break
    assert seen == list(range(100))


async def test_it_requeues_a_message_whose_work_failed(aio: AbstractConnection) -> None:
    channel = await aio.channel()
    queue = await channel.declare_queue(exclusive=True)
    await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)
    seen: list[bool | None] = []
    done = asyncio.Event()

    async def work(message: AbstractIncomingMessage) -> None:
        seen.append(message.redelivered)
        if message.redelivered:
            await message.ack()
            done.set()
        else:
            await message.reject(requeue=True)

    await queue.consume(work)
    await asyncio.wait_for(done.wait(), 60)
    assert seen == [False, True]


async def test_it_binds_exchanges_of_every_type(aio: AbstractConnection, name: str) -> None:
    channel = await aio.channel()
    for type_ in ("direct", "fanout", "topic", "headers"):
        exchange = await channel.declare_exchange(f"{name}-{type_}", type_, auto_delete=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "k", arguments={"h": 1} if type_ == "headers" else None)
        await exchange.publish(aio_pika.Message(type_.encode(), headers={"h": 1}), "k")
        message = await queue.get(no_ack=True, timeout=60)
        assert message.body == type_.encode()
        await queue.unbind(exchange, "k", arguments={"h": 1} if type_ == "headers" else None)


async def test_it_works_in_transactions(aio: AbstractConnection) -> None:
    channel = await aio.channel(publisher_confirms=False)
    queue = await channel.declare_queue(exclusive=True)
    async with channel.transaction():
        await channel.default_exchange.publish(aio_pika.Message(b"kept"), queue.name)
    with pytest.raises(ZeroDivisionError):
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"dropped"), queue.name)
            raise ZeroDivisionError
    result = (await channel.declare_queue(queue.name, passive=True)).declaration_result
    assert result.message_count == 1


async def test_it_raises_what_the_broker_said(aio: AbstractConnection, name: str) -> None:
    channel = await aio.channel()
    with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity, match=name):
        await channel.declare_queue(name, passive=True)
