"""Chosen columns: the values of the whole row, for less work than any row takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.server.control.queue_fields import FIELDS
from management.broker_client import BrokerClient
from tests.control.stand_in import Broker, Queue

QUEUES = 10_000

reads: Counter[str] = Counter()


class Counting(Queue):
    """A queue that counts what is read of it."""

    def __getattribute__(self, name: str) -> Any:
        reads[name] += 1
        return super().__getattribute__(name)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[BrokerClient]:
    vhost = broker.vhosts["/"]
    for number in range(QUEUES):
        name = f"q{number:05}"
        vhost.queues[name] = Counting("/", name)
    client = await broker.start()
    yield client
    await client.close()
    await broker.stop()


async def work(client: BrokerClient, **arguments: Any) -> int:
    """How many fields of queues a page of 100 reads."""
    await client.call("list", noun="queues", page=50, **arguments)
    reads.clear()
    answer = await client.call("list", noun="queues", page=50, **arguments)
    assert len(answer["items"]) == 100
    return reads.total()


async def test_columns_take_less_work_than_a_lean_row(client: BrokerClient) -> None:
    whole = await work(client)
    lean = await work(client, disable_stats=True)
    assert lean < whole
    some = {
        "one": ["name"],
        "three": ["name", "messages", "vhost"],
        "a policy": ["name", "vhost", "policy"],
        "a rate": ["name", "vhost", "message_stats.publish_details.rate"],
        "flags": ["name", "durable", "exclusive", "auto_delete"],
        "what lean shows": ["name", "vhost", "durable", "auto_delete", "exclusive", "type"],
    }
    for title, columns in some.items():
        assert await work(client, columns=columns) < lean, title


async def test_columns_are_those_of_the_whole_row(broker: Broker) -> None:
    queue, _ = broker.vhosts["/"].declare_queue("q", durable=True)
    queue.add("", b"\0\0", b"xyz")
    client = await broker.start()
    try:
        (row,) = (await client.call("list", noun="queues"))["items"]
        assert row.keys() <= FIELDS
        for name, value in row.items():
            (picked,) = (await client.call("list", noun="queues", columns=[name]))["items"]
            assert picked == {name: value}
        for name in ("publish", "deliver", "deliver_get", "get_empty"):
            (picked,) = (
                await client.call("list", noun="queues", columns=[f"message_stats.{name}"])
            )["items"]
            assert picked == {"message_stats": {name: row["message_stats"][name]}}
            rate = f"message_stats.{name}_details.rate"
            (picked,) = (await client.call("list", noun="queues", columns=["name", rate]))["items"]
            assert picked == {"name": "q", "message_stats": {f"{name}_details": {"rate": 0.0}}}
        nothing = await client.call("list", noun="queues", columns=["no such"])
        assert nothing["items"] == [{}]
    finally:
        await client.close()
        await broker.stop()


async def test_columns_of_bindings_are_those_of_the_whole_row(broker: Broker) -> None:
    broker.vhosts["/"].declare_queue("q", durable=True)
    client = await broker.start()
    try:
        await client.call("exchange.declare", vhost="/", name="x", type="direct")
        await client.call(
            "binding.create",
            vhost="/",
            source="x",
            destination="q",
            destination_type="queue",
            routing_key="a key/ü",
            arguments={"x": 1},
        )
        rows = (await client.call("list", noun="bindings"))["items"]
        assert len(rows) == 2
        for name in rows[0]:
            picked = (await client.call("list", noun="bindings", columns=[name]))["items"]
            assert picked == [{name: row[name]} for row in rows]
    finally:
        await client.close()
        await broker.stop()
