"""To Debian's RabbitMQ and from it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.client.aio import Connection, connect
from broker.client.uri import Endpoint
from tests.bench.rabbitmq import RabbitMQ
from tests.bridges.conftest import Bench, declare, publish, ready, taken


@pytest.fixture
async def rabbit(rabbitmq: RabbitMQ) -> AsyncIterator[Connection]:
    async with await connect(Endpoint(port=rabbitmq.port)) as connection:
        yield connection


async def test_it_moves_to_rabbitmq_and_back(
    bench: Bench, rabbitmq: RabbitMQ, rabbit: Connection
) -> None:
    uri = f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}"
    bodies = await bench.publish(3000, headers={"kept": "x"})
    await bench.put(dest_uri=uri, dest_queue=bench.target)
    await bench.until(lambda row: row["message_count"] == 3000 and not row["pending"])
    assert await ready(rabbit, bench.target) == 3000
    back = f"{bench.queue}-back"
    await bench.put(src_uri=uri, src_queue=bench.target, dest_queue=back)
    found = await taken(bench.here, back, 3000)
    assert [message.body for message in found] == bodies
    assert found[0].decoded()["headers"] == {"kept": "x"}
    await bench.until(lambda row: not row["pending"])


async def test_rabbitmq_refuses_and_what_it_refuses_is_held(
    bench: Bench, rabbitmq: RabbitMQ, rabbit: Connection
) -> None:
    async with rabbit.channel() as channel:
        await declare(channel, bench.target, x_max_length=10, x_overflow="reject-publish")
    bodies = await bench.publish(30)
    uri = f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}"
    await bench.put(dest_uri=uri, dest_queue=bench.target)
    await bench.until_state("blocked")
    found = await taken(rabbit, bench.target, 30, is_there=True)
    assert {message.body for message in found} == set(bodies)
    row = await bench.until(lambda row: not row["pending"])
    assert row["message_count"] == 30


async def test_it_takes_so_many_from_rabbitmq_and_no_more(
    bench: Bench, rabbitmq: RabbitMQ, rabbit: Connection
) -> None:
    uri = f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}"
    async with rabbit.channel() as channel:
        await declare(channel, bench.queue)
        await publish(channel, bench.queue, 50)
    await bench.put(src_uri=uri, dest_queue=bench.target, src_delete_after=20, src_prefetch_count=5)
    await bench.until_gone()
    assert await ready(bench.here, bench.target) == 20
    left = await taken(rabbit, bench.queue, 30)
    assert not any(message.redelivered for message in left)
