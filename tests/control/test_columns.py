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


@pytest.fixture
async def peopled(broker: Broker) -> AsyncIterator[BrokerClient]:
    """Ten connections with a channel and a consumer each, and exchanges."""
    queue, _ = broker.vhosts["/"].declare_queue("q", durable=True)
    for number in range(10):
        connection = broker.connect("guest")
        connection.channels[1].consume(queue, f"tag {number}")
        broker.vhosts["/"].declare_exchange(f"x{number}")
    client = await broker.start()
    yield client
    await client.close()
    await broker.stop()


@pytest.mark.parametrize("noun", ["connections", "channels", "consumers", "exchanges", "vhosts"])
async def test_columns_of_a_noun_are_those_of_the_whole_row(
    peopled: BrokerClient, noun: str
) -> None:
    rows = (await peopled.call("list", noun=noun))["items"]
    for name in rows[0]:
        picked = (await peopled.call("list", noun=noun, columns=[name]))["items"]
        assert picked == [{name: row[name]} for row in rows], name
        if isinstance(rows[0][name], dict):
            for inner in rows[0][name]:
                columns = ["name", f"{name}.{inner}"]
                picked = (await peopled.call("list", noun=noun, columns=columns))["items"]
                assert [row[name] for row in picked] == [{inner: row[name][inner]} for row in rows]
    nothing = await peopled.call("list", noun=noun, columns=["no such"])
    assert nothing["items"] == [{}] * len(rows)
    lean = (await peopled.call("list", noun=noun, disable_stats=True))["items"]
    assert all(one.items() <= row.items() for one, row in zip(lean, rows, strict=True))


def counted(thing: Any) -> None:
    """From now on, what is read of the thing is counted."""

    def read(self: Any, name: str) -> Any:
        reads[name] += 1
        return object.__getattribute__(self, name)

    thing.__class__ = type("Counted", (type(thing),), {"__getattribute__": read})


@pytest.mark.parametrize(
    ("noun", "columns"),
    [
        ("connections", ["name"]),
        ("connections", ["name", "recv_oct"]),
        ("channels", ["number"]),
        ("channels", ["number", "prefetch_count"]),
        ("exchanges", ["name"]),
        ("exchanges", ["name", "vhost", "type"]),
        ("vhosts", ["name"]),
        ("vhosts", ["name", "tracing"]),
    ],
)
async def test_columns_of_a_noun_take_less_work_than_a_lean_row(
    peopled: BrokerClient, broker: Broker, noun: str, columns: list[str]
) -> None:
    for connection in broker.connections.values():
        counted(connection)
        counted(connection.channels[1])
    for vhost in broker.vhosts.values():
        counted(vhost)
        for exchange in vhost.exchanges.values():
            counted(exchange)

    async def taken(**arguments: Any) -> int:
        reads.clear()
        await peopled.call("list", noun=noun, **arguments)
        return reads.total()

    lean = await taken(disable_stats=True)
    assert await taken(columns=columns) < lean < await taken()
