"""What applications build with a broker, through aio-pika, as its users write it."""

from __future__ import annotations

import asyncio

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
from aio_pika.patterns import RPC, Master, NackMessage

from tests.conftest import Make


async def test_it_calls_functions_elsewhere(aio: AbstractConnection, name: str) -> None:
    channel = await aio.channel()
    rpc = await RPC.create(channel)

    async def multiply(*, x: int, y: int) -> int:
        if y == 0:
            raise ValueError("by zero")
        return x * y

    await rpc.register(name, multiply, auto_delete=True)
    results = await asyncio.gather(*(rpc.call(name, {"x": n, "y": n + 1}) for n in range(20)))
    assert results == [n * (n + 1) for n in range(20)]
    with pytest.raises(ValueError, match="by zero"):
        await rpc.call(name, {"x": 1, "y": 0})
    await rpc.close()


async def test_it_shares_work_among_workers(aio: AbstractConnection, name: str) -> None:
    channel = await aio.channel()
    await channel.set_qos(prefetch_count=2)
    master = Master(channel)
    done: list[int] = []
    over = asyncio.Event()

    async def work(*, number: int) -> None:
        if number == 3 and 3 not in done:
            done.append(3)
            raise NackMessage(requeue=True)
        done.append(number)
        if len(done) == 11:
            over.set()

    worker = await master.create_worker(name, work, auto_delete=True)
    for number in range(10):
        await master.create_task(name, {"number": number})
    async with asyncio.timeout(60):
        await over.wait()
    assert sorted(done) == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]
    await worker.close()


async def test_a_robust_connection_comes_back_with_its_consumers(
    make_broker: Make, name: str
) -> None:
    broker = make_broker()
    settings = {"amqp_port": broker.amqp_port}
    connection = await aio_pika.connect_robust(
        f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}/", reconnect_interval=0.1
    )
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(message: AbstractIncomingMessage) -> None:
        async with message.process():
            got.put_nowait(message.body)

    async with connection, asyncio.timeout(60):
        channel = await connection.channel()
        queue = await channel.declare_queue(name, durable=True)
        await queue.consume(take)
        await channel.default_exchange.publish(aio_pika.Message(b"before"), name)
        assert await got.get() == b"before"
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, broker.kill)
        broker.settings |= settings
        await loop.run_in_executor(None, broker.start)
        while True:
            try:
                await channel.default_exchange.publish(aio_pika.Message(b"after"), name)
                break
            except (aio_pika.exceptions.AMQPError, ConnectionError, RuntimeError):
                await asyncio.sleep(0.05)
        assert await got.get() == b"after"


async def test_a_failed_task_waits_longer_each_time(aio: AbstractConnection, name: str) -> None:
    """A delayed exchange is the timetable of retries."""
    channel = await aio.channel()
    later = await channel.declare_exchange(
        name, "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    queue = await channel.declare_queue(name, durable=True)
    await queue.bind(later)
    await channel.default_exchange.publish(aio_pika.Message(b"task"), name)
    waits = []
    async with asyncio.timeout(60), queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                attempt = int(str(message.headers.get("attempt", 0)))
                waits.append(abs(int(str(message.headers.get("x-delay", 0)))))
                if attempt == 3:
                    break
                headers = {"attempt": attempt + 1, "x-delay": 20 * 2**attempt}
                await later.publish(aio_pika.Message(message.body, headers=headers), "")
    assert waits == [0, 20, 40, 80]
    await queue.delete(if_empty=False)
    await later.delete()


async def test_it_sends_what_nobody_takes_somewhere_else(
    aio: AbstractConnection, name: str
) -> None:
    channel = await aio.channel()
    unrouted = await channel.declare_queue(f"{name}.unrouted", durable=True)
    stray = await channel.declare_exchange(f"{name}.stray", "fanout", durable=True)
    await unrouted.bind(stray)
    main = await channel.declare_exchange(
        name, "topic", durable=True, arguments={"alternate-exchange": f"{name}.stray"}
    )
    await main.publish(aio_pika.Message(b"?"), "no.such.key")
    message = await unrouted.get(timeout=60)
    assert message is not None
    assert (message.body, message.routing_key, message.exchange) == (b"?", "no.such.key", name)
    await message.ack()
    await unrouted.delete()
    await main.delete()
    await stray.delete()
