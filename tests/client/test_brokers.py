"""The client against real brokers: Leveret and RabbitMQ."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from broker.client.aio import Channel, Connection, connect
from broker.client.batch import Batch
from broker.client.errors import ChannelClosed, ConnectionClosed, ConnectionLost
from broker.client.message import Message
from broker.client.properties import encode
from broker.client.uri import TLS, Endpoint
from tests.conftest import Make
from tests.control.test_real_broker import control
from tests.listeners.certificates import Authority
from tests.promptness import LateError, in_time


@pytest.fixture
async def queue(connection: Connection) -> AsyncIterator[str]:
    """A queue that is deleted afterwards."""
    name = f"client-{uuid.uuid4().hex[:8]}"
    async with connection.channel() as channel:
        await channel.call("queue.declare", queue=name)
    yield name
    if connection.core.closed is None:
        async with connection.channel() as channel:
            await channel.call("queue.delete", queue=name)


async def until(true: Callable[[], bool]) -> None:
    """Looks again, many times a second, until it is true."""
    deadline = asyncio.get_running_loop().time() + 30
    while not true():
        assert asyncio.get_running_loop().time() < deadline, "it does not come"
        await asyncio.sleep(0.005)


async def test_it_publishes_confirmed_and_consumes(connection: Connection, queue: str) -> None:
    channel = await connection.open_channel()
    await channel.select_confirms()
    listed = encode({"message_id": "m", "headers": {"n": 1}})
    bodies = [b"x" * size for size in (0, 1, 16, 4096, 131072, 400_000)]
    for body in bodies:
        channel.core.publish(b"", queue.encode(), listed, body)
    connection.flush()
    await channel.confirms_below(1)
    found: list[Message] = []

    def keep(channel: Channel, batch: Batch) -> None:
        found.extend(batch.messages())
        channel.core.ack(batch.last_tag, multiple=True)

    consumer = await channel.consume(queue, keep, prefetch=3)
    await until(lambda: len(found) == len(bodies))
    assert [one.body for one in found] == bodies
    assert found[0].decoded() == {"message_id": "m", "headers": {"n": 1}}
    await channel.cancel(consumer)
    assert await channel.get(queue) is None, "all were acknowledged"


async def test_it_gives_back_what_is_not_acknowledged(connection: Connection, queue: str) -> None:
    channel = await connection.open_channel()
    channel.core.publish(b"", queue.encode(), b"\0\0", b"again")
    connection.flush()
    first = await channel.get(queue)
    assert first is not None and not first.redelivered
    channel.core.nack(first.delivery_tag)
    second = await channel.get(queue)
    assert second is not None and second.redelivered
    channel.core.ack(second.delivery_tag)
    assert await channel.get(queue) is None


async def test_it_is_told_of_returns_and_refusals(connection: Connection) -> None:
    channel = await connection.open_channel()
    await channel.select_confirms()
    back: list[tuple[int, str, bytes]] = []
    channel.on_return = lambda message, text: back.append((message.code, text, message.body))
    channel.core.publish(b"", b"no such queue", b"\0\0", b"back", mandatory=True)
    connection.flush()
    await channel.confirms_below(1)
    assert back == [(312, "NO_ROUTE", b"back")]
    name = f"client-{uuid.uuid4().hex[:8]}"
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await channel.call("queue.declare", queue=name, exclusive=True, arguments=arguments)
    refused: list[int] = []
    channel.on_refused = refused.extend
    for _ in range(3):
        channel.core.publish(b"", name.encode(), b"\0\0", b"")
        connection.flush()
        await channel.confirms_below(1)
    assert refused == [3, 4], "the second message here finds the queue full"


async def test_a_closed_channel_leaves_the_connection_open(connection: Connection) -> None:
    channel = await connection.open_channel()
    for _ in range(2):
        with pytest.raises(ChannelClosed) as caught:
            await channel.call("queue.declare", queue="client-none", passive=True)
        assert (caught.value.code, caught.value.method) == (404, 50 << 16 | 10)
    with pytest.raises(ChannelClosed):
        await channel.select_confirms()
    async with connection.channel() as other:
        await other.call("basic.qos", prefetch_count=1)


async def test_a_channel_that_closes_wakes_who_waits_for_confirms(connection: Connection) -> None:
    channel = await connection.open_channel()
    await channel.select_confirms()
    channel.core.publish(b"no such exchange", b"", b"\0\0", b"")
    connection.flush()
    with pytest.raises(ChannelClosed, match="404"):
        await channel.confirms_below(1)


async def test_it_hears_that_its_queue_was_deleted(connection: Connection, queue: str) -> None:
    channel = await connection.open_channel()
    consumer = await channel.consume(queue, lambda *_: None)
    async with connection.channel() as other:
        await other.call("queue.delete", queue=queue)
    async with asyncio.timeout(30):
        await consumer.cancelled.wait()
    assert channel.core.consumers == []
    async with connection.channel() as other:
        await other.call("queue.declare", queue=queue)


async def test_it_commits_transactions(connection: Connection, queue: str) -> None:
    channel = await connection.open_channel()
    await channel.call("tx.select")
    channel.core.publish(b"", queue.encode(), b"\0\0", b"never")
    await channel.call("tx.rollback")
    channel.core.publish(b"", queue.encode(), b"\0\0", b"once")
    await channel.call("tx.commit")
    found = await channel.get(queue, no_ack=True)
    assert found is not None and found.body == b"once"
    assert await channel.get(queue, no_ack=True) is None


async def test_it_says_why_it_could_not_connect(endpoint: Endpoint) -> None:
    with pytest.raises(ConnectionClosed, match="403") as caught:
        await connect(dataclasses.replace(endpoint, password="wrong"))
    assert "wrong" not in str(caught.value)
    with pytest.raises(ConnectionClosed, match="530"):
        await connect(dataclasses.replace(endpoint, vhost="no such vhost"))
    with pytest.raises(ConnectionLost, match="amqp://"):
        await connect(dataclasses.replace(endpoint, port=1))


async def test_it_moves_messages_between_brokers(
    connection: Connection, queue: str, endpoint: Endpoint
) -> None:
    """As a shovel does: published again as they are, acknowledged when they are confirmed."""
    count = 2000
    source = await connection.open_channel()
    listed = encode({"delivery_mode": 1, "headers": {"kept": "byte for byte"}})
    for number in range(count):
        source.core.publish(b"", queue.encode(), listed, b"%d" % number)
    connection.flush()
    async with await connect(endpoint) as far:
        target = await far.open_channel()
        await target.select_confirms()
        name = f"{queue}-target"
        await target.call("queue.declare", queue=name, exclusive=True)
        moved = 0

        def move(channel: Channel, batch: Batch) -> None:
            nonlocal moved
            target.core.republish(batch, 0, batch.count, b"", name.encode())
            far.flush()
            moved += batch.count
            channel.core.ack(batch.last_tag, multiple=True)

        await source.consume(queue, move, prefetch=500)
        await until(lambda: moved == count)
        await target.confirms_below(1)
        found: list[Message] = []
        await target.consume(name, lambda _, batch: found.extend(batch.messages()), no_ack=True)
        await until(lambda: len(found) == count)
    assert [one.body for one in found] == [b"%d" % number for number in range(count)]
    assert {one.properties for one in found} == {listed}


@in_time
async def test_it_answers_heartbeats(endpoint: Endpoint) -> None:
    async with await connect(dataclasses.replace(endpoint, heartbeat=1)) as connection:
        assert connection.core.heartbeat == 1
        done, _ = await asyncio.wait([connection.ended], timeout=3.5)
        if done:
            raise LateError("a server drops a silent client after two to three intervals")


async def test_a_connection_that_is_closed_from_outside_says_so(make_broker: Make) -> None:
    broker = make_broker()
    endpoint = Endpoint(host=broker.host, port=broker.amqp_port)
    connection = await connect(endpoint)
    channel = await connection.open_channel()
    async with control(broker) as client:
        await client.call("connection.close_user", user="guest", reason="maintenance")
    error = await asyncio.wait_for(connection.ended, 60)
    assert isinstance(error, ConnectionClosed)
    assert (error.code, error.text) == (320, "CONNECTION_FORCED - maintenance")
    with pytest.raises(ConnectionClosed):
        await channel.call("basic.qos", prefetch_count=1)
    other = await connect(endpoint)
    broker.kill()
    assert isinstance(await asyncio.wait_for(other.ended, 60), ConnectionLost)
    await other.close()


async def test_a_blocked_publisher_waits(make_broker: Make) -> None:
    broker = make_broker(disk_free_limit="900000 GB")
    async with await connect(Endpoint(host=broker.host, port=broker.amqp_port)) as connection:
        told: list[str | None] = []
        connection.on_blocked = told.append
        channel = await connection.open_channel()
        channel.core.publish(b"", b"nowhere", b"\0\0", b"")
        connection.flush()
        await until(lambda: bool(told))
        assert told[0] is not None and "disk" in told[0]
        assert not connection.is_writable


async def test_it_uses_tls_and_unix_sockets(make_broker: Make, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    path = tmp_path / "amqp.sock"
    broker = make_broker(
        amqps_port=0, tls_cert_file=authority.issue("localhost"), unix_path=str(path)
    )
    port = int(broker.addresses["amqps"][1])
    trusting = Endpoint(port=port, tls=TLS(ca_file=authority.file, server_name="localhost"))
    async with await connect(trusting) as connection:
        await connection.open_channel()
    unverified = dataclasses.replace(trusting, tls=TLS(verify=False))
    async with await connect(unverified) as connection:
        await connection.open_channel()
    for tls in (TLS(), TLS(ca_file=authority.file)):
        with pytest.raises(ConnectionLost, match="certificate is not accepted"):
            await connect(dataclasses.replace(trusting, tls=tls))
    with pytest.raises(ConnectionLost, match="cannot be used"):
        await connect(dataclasses.replace(trusting, tls=TLS(ca_file=tmp_path / "none.pem")))
    async with await connect(Endpoint(path=str(path))) as connection:
        await connection.open_channel()
