"""Chosen columns: the values of the whole row, for less work than any row takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from broker.queues.classic import ClassicQueue
from broker.queues.types import TYPES
from broker.server import app
from broker.server.app import Broker
from broker.server.control.queue_fields import FIELDS
from broker.wire import channel
from management.broker_client import BrokerClient
from tests.inside import connect, publish

QUEUES = 10_000

reads: Counter[str] = Counter()


def counted(kind: type) -> type:
    """Such a class that counts what Python reads of its instances."""

    def read(self: Any, name: str) -> Any:
        reads[name] += 1
        return object.__getattribute__(self, name)

    return type("Counted", (kind,), {"__getattribute__": read, "__slots__": ()})


@pytest.fixture
def still(broker: Broker) -> None:
    """What runs by the clock, for usage and for queues at rest, reads nothing of them."""
    broker.timers.close()


@pytest.fixture
def many(broker: Broker, still: None, monkeypatch: pytest.MonkeyPatch) -> None:
    classic = TYPES["classic"]
    monkeypatch.setitem(TYPES, "classic", classic._replace(make=counted(ClassicQueue)))
    for number in range(QUEUES):
        broker.vhosts["/"].declare_queue(f"q{number:05}")


async def work(client: BrokerClient, **arguments: Any) -> int:
    """How many fields of queues a page of 100 reads."""
    await client.call("list", noun="queues", page=50, **arguments)
    reads.clear()
    answer = await client.call("list", noun="queues", page=50, **arguments)
    assert len(answer["items"]) == 100
    return reads.total()


@pytest.mark.usefixtures("many")
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


async def picked(client: BrokerClient, noun: str, columns: list[str]) -> list[dict[str, Any]]:
    """These columns of all rows."""
    found: list[dict[str, Any]] = (await client.call("list", noun=noun, columns=columns))["items"]
    return found


async def whole_and_picked(client: BrokerClient, noun: str, name: str) -> tuple[Any, Any]:
    """A column as the whole rows have it, and asked for alone: between the two it may change, such
    as the memory of a queue, and then they are asked for again."""
    async with asyncio.timeout(30):
        while True:
            before, alone, after = (
                (await client.call("list", noun=noun))["items"],
                await picked(client, noun, [name]),
                (await client.call("list", noun=noun))["items"],
            )
            whole = [{name: row[name]} for row in before]
            if whole == [{name: row[name]} for row in after]:
                return whole, alone


async def test_columns_are_those_of_the_whole_row(broker: Broker, client: BrokerClient) -> None:
    broker.vhosts["/"].declare_queue("q", durable=True)
    publish(broker.vhosts["/"], "q", body=b"xyz")
    (row,) = (await client.call("list", noun="queues"))["items"]
    assert row.keys() <= FIELDS
    for name in row:
        whole, alone = await whole_and_picked(client, "queues", name)
        assert alone == whole
    for name in ("publish", "deliver", "deliver_get", "get_empty"):
        (alone,) = await picked(client, "queues", [f"message_stats.{name}"])
        assert alone == {"message_stats": {name: row["message_stats"][name]}}
        rate = f"message_stats.{name}_details.rate"
        (alone,) = await picked(client, "queues", ["name", rate])
        assert alone == {"name": "q", "message_stats": {f"{name}_details": {"rate": 0.0}}}
    assert await picked(client, "queues", ["no such"]) == [{}]


async def test_columns_of_bindings_are_those_of_the_whole_row(
    broker: Broker, client: BrokerClient
) -> None:
    broker.vhosts["/"].declare_queue("q", durable=True)
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
        assert await picked(client, "bindings", [name]) == [{name: row[name]} for row in rows]


@pytest.fixture
async def peopled(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten connections with a channel and a consumer each, and exchanges."""
    monkeypatch.setattr(channel, "Channel", counted(channel.Channel))
    monkeypatch.setattr(app, "Connection", counted(app.Connection))
    broker.vhosts["/"].declare_queue("q", durable=True)
    for number in range(10):
        await (await connect(broker, "guest")).consume("q", f"tag {number}")
        broker.vhosts["/"].declare_exchange(f"x{number}", "direct")


@pytest.mark.usefixtures("peopled")
@pytest.mark.parametrize("noun", ["connections", "channels", "consumers", "exchanges", "vhosts"])
async def test_columns_of_a_noun_are_those_of_the_whole_row(
    client: BrokerClient, noun: str
) -> None:
    rows = (await client.call("list", noun=noun))["items"]
    for name in rows[0]:
        whole, alone = await whole_and_picked(client, noun, name)
        assert alone == whole, name
        if isinstance(rows[0][name], dict):
            for inner in rows[0][name]:
                alone = await picked(client, noun, ["name", f"{name}.{inner}"])
                assert [row[name] for row in alone] == [{inner: row[name][inner]} for row in rows]
    assert await picked(client, noun, ["no such"]) == [{}] * len(rows)
    lean = (await client.call("list", noun=noun, disable_stats=True))["items"]
    assert all(one.items() <= row.items() for one, row in zip(lean, rows, strict=True))


@pytest.mark.usefixtures("peopled", "still")
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
    broker: Broker, client: BrokerClient, noun: str, columns: list[str]
) -> None:
    vhosts = list(broker.vhosts.values())
    exchanges = [exchange for vhost in vhosts for exchange in vhost.exchanges.values()]
    things: list[Any] = [*vhosts, *exchanges]
    for thing in things:
        thing.__class__ = counted(type(thing))

    async def taken(**arguments: Any) -> int:
        reads.clear()
        await client.call("list", noun=noun, **arguments)
        return reads.total()

    lean = await taken(disable_stats=True)
    assert await taken(columns=columns) < lean < await taken()
