"""Looking through many delayed messages, in memory and on disk, and cancelling some."""

from __future__ import annotations

import random
from typing import Any

from management.broker_client import BrokerClient
from tests.amqp import raw
from tests.amqp.raw import Client
from tests.amqp.test_delayed import durable
from tests.appliance import Appliance
from tests.control.test_real_broker import control

COUNT = 20_000
DAY_MS = 86_400_000


def hold(broker: Appliance, first: int, count: int) -> list[tuple[int, str]]:
    """Publishes `count` messages with delays of days; (delay, routing key) of each."""
    chance = random.Random(first)
    rows = [(chance.randrange(DAY_MS, 9 * DAY_MS), f"key.{n}") for n in range(first, first + count)]
    with Client.open((broker.host, broker.amqp_port)) as client:
        durable(client)
        client.send(
            b"".join(
                raw.publish(1, "later", key, b"x", headers={"x-delay": delay}, delivery_mode=2)
                for delay, key in rows
            )
        )
        client.expect_confirms(1, count)
    return rows


async def everything(client: BrokerClient, **args: Any) -> list[dict[str, Any]]:
    """All pages."""
    items: list[dict[str, Any]] = []
    after = None
    while True:
        page: Any = await client.call(
            "exchange.delayed", vhost="/", name="later", count=500, after=after, **args
        )
        items += page["items"]
        after = page["next"]
        if after is None:
            return items


def check(items: list[dict[str, Any]], rows: list[tuple[int, str]]) -> None:
    """Every message once, soonest first."""
    dues = [item["due"] for item in items]
    assert dues == sorted(dues)
    assert {(-item["properties"]["headers"]["x-delay"], item["routing_key"]) for item in items} == (
        set(rows)
    )
    assert len(items) == len(rows)


async def cancel(client: BrokerClient, item: dict[str, Any]) -> None:
    await client.call("exchange.delayed.cancel", vhost="/", name="later", id=item["id"])


async def test_it_finds_and_cancels_among_many_before_and_after_kill_9(make_broker: Any) -> None:
    broker = make_broker(segment_size=1 << 20)
    # More than one run of the index, and a rest in memory.
    rows = hold(broker, 0, COUNT)
    async with control(broker) as client:
        items = await everything(client)
        check(items, rows)
        gone = [items[0], items[COUNT // 2], items[-1]]
        for item in gone:
            await cancel(client, item)
        rows = sorted(
            set(rows)
            - {(-item["properties"]["headers"]["x-delay"], item["routing_key"]) for item in gone}
        )
        delay, key = rows[7]
        found = await everything(client, routing_key=key)
        assert delay in {-item["properties"]["headers"]["x-delay"] for item in found}
        assert all(key in item["routing_key"] for item in found)
    broker.kill()
    broker.start()
    rows += hold(broker, COUNT, 100)
    async with control(broker) as client:
        items = await everything(client)
        check(items, rows)
        until, since = items[1999]["due"], items[1000]["due"]
        some = await everything(client, due_from=since, due_until=until)
        assert some == [item for item in items if since <= item["due"] <= until]
        await cancel(client, items[1])
        row = await client.call("item", noun="exchanges", vhost="/", name="later")
        assert row["messages_delayed"] == len(rows) - 1
