"""Figures of rows: each says what is so, or nothing."""

from __future__ import annotations

import asyncio
import datetime
import itertools
from typing import Any

import pika
import pytest

from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.test_real_broker import connect, control, until

PERSISTENT = pika.BasicProperties(delivery_mode=2)


async def look(client: BrokerClient, name: str, noun: str = "queues", **more: Any) -> Any:
    return await client.call("item", noun=noun, vhost="/", name=name, **more)


@pytest.fixture
async def client(shared_broker: Appliance) -> Any:
    async with control(shared_broker) as client:
        yield client


async def test_a_queue_says_how_much_of_the_time_its_consumers_keep_up(
    client: BrokerClient, connection: Any, channel: Any
) -> None:
    for name in ("keeps up", "waits", "nobody"):
        channel.queue_declare(name, auto_delete=True)
    slow = connection.channel()
    slow.basic_qos(prefetch_count=1)
    slow.basic_consume("waits", lambda *_: None)
    channel.basic_consume("keeps up", lambda *_: None, auto_ack=True)

    async def publish() -> dict[str, Any]:
        for name in ("keeps up", "waits", "nobody"):
            channel.basic_publish("", name, b"m")
        connection.process_data_events(0)
        rows = [await look(client, name) for name in ("keeps up", "waits", "nobody")]
        assert all(row["consumer_utilisation"] == row["consumer_capacity"] for row in rows[::2])
        return {row["name"]: row["consumer_capacity"] for row in rows}

    found = await until(publish, lambda found: found["waits"] < 0.5)
    assert found["keeps up"] > 0.99
    assert found["nobody"] == 0
    # Nothing is left that a consumer could not take at once.
    channel.queue_purge("waits")
    slow.basic_nack(0, multiple=True, requeue=False)
    await until(lambda: look(client, "waits"), lambda row: row["consumer_capacity"] > 0.5)


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}, {"x-queue-type": "quorum"}])
async def test_it_shows_the_timestamp_of_the_head_from_memory_and_from_disk(
    client: BrokerClient, channel: Any, arguments: dict[str, Any]
) -> None:
    channel.confirm_delivery()
    channel.queue_declare("stamped", durable=True, arguments=arguments)
    try:
        assert (await look(client, "stamped"))["head_message_timestamp"] is None
        headers = {"filler": "x" * 3000}
        for stamp, mode in ((1_700_000_001, 2), (1_700_000_002, 2), (None, 2), (7, 1)):
            found = pika.BasicProperties(delivery_mode=mode, timestamp=stamp, headers=headers)
            channel.basic_publish("", "stamped", b"m" * 100, found)
        seen = []
        for _ in range(4):
            seen.append((await look(client, "stamped"))["head_message_timestamp"])
            channel.basic_get("stamped", auto_ack=True)
        assert seen == [1_700_000_001, 1_700_000_002, None, 7]
        channel.basic_publish("", "stamped", b"", pika.BasicProperties(timestamp=9))
        assert (await look(client, "stamped"))["head_message_timestamp"] == 9
    finally:
        channel.queue_delete("stamped")


async def test_a_new_queue_is_idle_since_it_was_made(make_broker: Make) -> None:
    broker = make_broker()
    async with control(broker) as client:
        started = (await client.call("overview"))["started_at"]
        # The clock of the broker counts in milliseconds.
        await asyncio.sleep(0.05)
        connection = connect(broker)
        channel = connection.channel()
        channel.queue_declare("new")
        for noun, name in (
            ("queues", "new"),
            ("channels", (await client.call("list", noun="channels"))["items"][0]["name"]),
        ):
            since = (await look(client, name, noun))["idle_since"]
            assert datetime.datetime.fromisoformat(since).timestamp() * 1000 >= started + 50
        for _ in range(3):
            channel.basic_publish("", "new", b"m")
        await until(lambda: look(client, "new"), lambda row: "idle_since" not in row)
        connection.close()


async def test_it_counts_persistent_messages_or_says_that_it_does_not_know(
    client: BrokerClient, channel: Any
) -> None:
    names = ("messages_persistent", "message_bytes_persistent")

    async def persistent(queue: str) -> list[Any]:
        row = await look(client, queue)
        return [row[name] for name in names]

    channel.confirm_delivery()
    channel.queue_declare("kept", durable=True)
    channel.queue_declare("not kept")
    for queue in ("kept", "not kept"):
        for _ in range(3):
            channel.basic_publish("", queue, b"12345", PERSISTENT)
    assert await persistent("kept") == [3, 15]
    assert await persistent("not kept") == [0, 0]
    channel.basic_publish("", "kept", b"12345")
    assert await persistent("kept") == [None, None]
    channel.queue_purge("kept")
    assert await persistent("kept") == [0, 0]
    channel.basic_publish("", "kept", b"12345")
    assert await persistent("kept") == [0, 0]
    for queue in ("kept", "not kept"):
        channel.queue_delete(queue)


async def test_memory_is_that_of_the_messages_a_queue_holds_there(
    client: BrokerClient, channel: Any
) -> None:
    channel.queue_declare("large")
    empty = await look(client, "large")
    assert 0 < empty["memory"] < 10_000
    assert empty["messages_ram"] == 0
    channel.confirm_delivery()
    for _ in range(10):
        channel.basic_publish("", "large", b"x" * 3000)
    row = await look(client, "large")
    # Some may have been written and let go by now.
    held = 10 if row["messages_ram"] is None else row["messages_ram"]
    assert row["memory"] > 3000 * held
    if row["messages_ram"] is not None:
        assert row["messages_ram"] + row["messages_paged_out"] == 10
    channel.queue_delete("large")


async def test_sums_of_levels_have_samples_too_for_who_sees_one_vhost_only(
    make_broker: Make,
) -> None:
    broker = make_broker()
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare("q")
    for _ in range(5):
        channel.basic_publish("", "q", b"m")
    ages = {"lengths": (20, 1), "msg_rates": (20, 1)}
    async with control(broker) as client:
        await client.call("user.put", name="tenant", password="tenant", tags=["management"])
        await client.call(
            "permission.put", user="tenant", vhost="/", configure=".*", write=".*", read=".*"
        )

        async def newest() -> int:
            answer = await client.call("overview", ages=ages)
            return int(answer["queue_totals"]["messages_details"]["samples"][0]["sample"])

        await until(newest, lambda count: count == 5)
        for user in (None, "tenant"):
            totals = (await client.call("overview", as_user=user, ages=ages))["queue_totals"]
            samples = totals["messages_details"]["samples"]
            assert samples[0]["sample"] == 5
            assert len(samples) == 21
            steps = {a["timestamp"] - b["timestamp"] for a, b in itertools.pairwise(samples)}
            assert steps == {1000}
        row = await look(client, "/", "vhosts", ages=ages)
        assert row["messages_details"]["samples"][0]["sample"] == 5
    connection.close()


async def test_a_queue_and_an_exchange_name_who_publishes(
    client: BrokerClient, connection: Any, channel: Any
) -> None:
    channel.exchange_declare("figures.spread", "topic", auto_delete=True)
    for queue in ("one", "two"):
        channel.queue_declare(queue, auto_delete=True)
        channel.queue_bind(queue, "figures.spread", f"{queue}.#")
    channel.queue_bind("two", "figures.spread", "one.both")
    for key, count in (("one.x", 3), ("two.x", 2), ("one.both", 4), ("two.x", 1), ("lost", 5)):
        for _ in range(count):
            channel.basic_publish("figures.spread", key, b"m")
    channel.basic_publish("", "two", b"m", pika.BasicProperties(headers={"CC": ["one"]}))
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume("one", lambda *_: None)
    connection.process_data_events(0.1)

    async def counts(noun: str, name: str, field: str, of: str, by: str = "publish") -> Any:
        rows = (await look(client, name, noun))[field]
        return {row[of]["name"]: row["stats"][by] for row in rows}

    assert await counts("queues", "one", "incoming", "exchange") == {"figures.spread": 7, "": 1}
    assert await counts("queues", "two", "incoming", "exchange") == {"figures.spread": 7, "": 1}
    outgoing = await counts("exchanges", "figures.spread", "outgoing", "queue")
    assert outgoing == {"one": 7, "two": 7}
    incoming = await counts("exchanges", "figures.spread", "incoming", "channel_details")
    assert list(incoming.values()) == [15]
    (name,) = incoming
    assert await counts("channels", name, "publishes", "exchange") == {"figures.spread": 15, "": 1}
    assert await counts("channels", name, "deliveries", "queue", "deliver") == {"one": 2}
    assert await counts("queues", "one", "deliveries", "channel_details", "deliver") == {name: 2}


async def test_what_a_transaction_publishes_counts_where_it_went_at_its_commit(
    client: BrokerClient, connection: Any, channel: Any
) -> None:
    for queue in ("first", "second"):
        channel.queue_declare(queue, auto_delete=True)
    transacted = connection.channel()
    transacted.basic_publish("", "first", b"m")
    transacted.tx_select()
    for queue in ("first", "second", "second"):
        transacted.basic_publish("", queue, b"m")
    connection.process_data_events(0)
    for queue, before, after in (("first", {"": 1}, {"": 2}), ("second", {}, {"": 2})):
        found = (await look(client, queue))["incoming"]
        assert {row["exchange"]["name"]: row["stats"]["publish"] for row in found} == before
        if queue == "first":
            continue
        transacted.tx_commit()
        for name, wanted in (("first", {"": 2}), (queue, after)):
            found = (await look(client, name))["incoming"]
            assert {row["exchange"]["name"]: row["stats"]["publish"] for row in found} == wanted


# RabbitMQ 3.10.8's keys of a row without statistics.
LEAN = {
    "queues": {"name", "vhost", "durable", "auto_delete", "exclusive", "arguments", "type",
               "node", "state"},
    "exchanges": {"name", "vhost", "durable", "auto_delete", "internal", "arguments", "type"},
    "connections": {"name", "node", "user", "vhost"},
    "vhosts": {"name", "description", "tags", "default_queue_type", "metadata", "tracing",
               "cluster_state", "protected_from_deletion"},
}  # fmt: skip


async def test_rows_without_statistics_hold_what_rabbitmq_has_then(
    client: BrokerClient, channel: Any
) -> None:
    channel.queue_declare("lean", auto_delete=True)
    channel.exchange_declare("lean", auto_delete=True)
    for noun, keys in LEAN.items():
        rows = (await client.call("list", noun=noun, disable_stats=True))["items"]
        assert rows
        for row in rows:
            assert row.keys() == keys
    totals = {"messages", "messages_ready", "messages_unacknowledged"}
    row = await look(client, "lean", disable_stats=True, enable_queue_totals=True)
    assert row.keys() == LEAN["queues"] | totals
    definition = {"expires": 9_999_999, "alternate-exchange": "amq.fanout"}
    args = {"vhost": "/", "name": "by", "pattern": "^lean$", "definition": definition}
    await client.call("policy.put", **args)
    try:
        for noun in ("queues", "exchanges"):

            async def lean(noun: str = noun) -> Any:
                return await look(client, "lean", noun, disable_stats=True)

            row = await until(lean, lambda row: "policy" in row)
            assert row.keys() == LEAN[noun] | {"policy"}
            assert row["policy"] == "by"
    finally:
        await client.call("policy.delete", vhost="/", name="by")
    overview = await client.call("overview", disable_stats=True)
    assert overview["disable_stats"] is True
    assert "message_stats" not in overview
    (node,) = await client.call("nodes", disable_stats=True)
    assert node.keys() == {"name", "type", "running"}
