"""Records of a history leave out headers that one before them has (docs/formats/stream.md)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

from broker.schema.message_history import HISTORY, USER
from broker.store.files.record_scan import Scan
from management.history_rows import record
from tests.amqp import raw
from tests.amqp.streams import files, until
from tests.appliance import Appliance
from tests.control.test_real_broker import connect, control
from tests.tiers.processes import Processes

COUNT = 50


@pytest.fixture
def broker(make_broker: Callable[[], Appliance]) -> Appliance:
    return make_broker()


async def publish(broker: Appliance, count: int = COUNT, **more: Any) -> None:
    """Messages of one way, with a history."""
    definition = {"history": "headers"} | {key.replace("_", "-"): more[key] for key in more}
    async with control(broker) as client:
        await client.call("policy.put", vhost="/", name="keep", pattern=".*", definition=definition)
    connection = connect(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("orders", durable=True)
    for number in range(count):
        properties = pika.BasicProperties(message_id=f"m{number}", headers={"own": number})
        channel.basic_publish("", "orders", b"x" * 100, properties)
    connection.close()


async def records(broker: Appliance) -> list[dict[str, Any]]:
    async with control(broker) as client:
        rows = await client.call(
            "stream.read", vhost="/", name=HISTORY, offset="first", count=10_000
        )
    return [record(row) for row in rows]


async def test_damage_of_the_whole_record_leaves_the_others_what_they_have_of_their_own(
    broker: Appliance,
) -> None:
    await publish(broker)
    before = await records(broker)
    broker.end(kill=True)
    (path,) = [each for each in files(broker, "msgs.*") if b"x-history-user" in each.read_bytes()]
    data = bytearray(path.read_bytes())
    assert data.count(b"x-history-user") == 1
    data[data.index(b"x-history-user") + 20] ^= 1
    path.write_bytes(data)
    broker.start()
    after = await records(broker)
    assert [row["offset"] for row in after] == list(range(1, COUNT))
    assert [row["properties"] for row in after] == [row["properties"] for row in before[1:]]
    assert all(row["user"] == "guest" for row in before)
    assert all(row.get("user") is None for row in after)
    assert "/quarantine/" in broker.log()


async def test_each_way_of_a_publisher_shares_headers_of_its_own(broker: Appliance) -> None:
    async with control(broker) as client:
        await client.call(
            "policy.put", vhost="/", name="keep", pattern=".*", definition={"history": "headers"}
        )
    connection = connect(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    names = [f"orders.{number}" for number in range(3)]
    for name in names:
        channel.queue_declare(name, durable=True)
    for number in range(COUNT):
        channel.basic_publish("", names[number % 3], b"x" * (number % 2))
    connection.close()
    rows = await records(broker)
    assert [row["queues"] for row in rows] == [[names[number % 3]] for number in range(COUNT)]
    assert [row["payload_bytes"] for row in rows] == [number % 2 for number in range(COUNT)]
    broker.end(kill=False)
    whole = sum(each.read_bytes().count(b"x-history-user") for each in files(broker, "msgs.*"))
    # A body of another size than in the whole record changes nothing but one header.
    assert whole == 3


async def test_records_of_named_exchanges_that_come_together_stay_within_a_segment(
    make_broker: Callable[..., Appliance],
) -> None:
    broker = make_broker(segment_size=65536)
    exchange, count = "e" * 30, 5000
    async with control(broker) as client:
        await client.call(
            "policy.put", vhost="/", name="keep", pattern=".*", definition={"history": "headers"}
        )
    with raw.Client.open((broker.host, broker.amqp_port)) as publisher:
        publisher.call(1, "exchange.declare", exchange=exchange, type="direct", durable=True)
        publisher.call(1, "queue.declare", queue="q", durable=True)
        publisher.call(1, "queue.bind", queue="q", exchange=exchange, routing_key="k")
        publisher.call(1, "confirm.select")
        publisher.send(raw.publish(1, exchange, "k", b"x", delivery_mode=2) * count)
        publisher.expect_confirms(1, count)
    assert [row["exchange"] for row in await records(broker)] == [exchange] * count
    broker.end(kill=False)
    sizes = [path.stat().st_size for path in files(broker, "msgs.*")]
    assert len(sizes) > 4
    assert max(sizes) <= 65536


async def test_messages_that_come_together_are_recorded_each(broker: Appliance) -> None:
    async with control(broker) as client:
        await client.call(
            "policy.put", vhost="/", name="keep", pattern=".*", definition={"history": "headers"}
        )
    sizes = range(100)
    with raw.Client.open((broker.host, broker.amqp_port)) as publisher:
        publisher.call(1, "queue.declare", queue="orders", durable=True)
        publisher.call(1, "confirm.select")
        publisher.send(
            b"".join(
                raw.publish(1, "", "orders", b"x" * size, delivery_mode=2, message_id=f"m{size}")
                for size in sizes
            )
        )
        assert set(publisher.expect_confirms(1, len(sizes)).values()) == {"basic.ack"}
    rows = await records(broker)
    assert [(row["properties"]["message_id"], row["payload_bytes"]) for row in rows] == [
        (f"m{size}", size) for size in sizes
    ]


@pytest.mark.parametrize("level", ["headers", "full"])
async def test_bursts_of_every_kind_are_recorded_whole_over_segments_and_a_start(
    broker: Appliance, level: str
) -> None:
    """Runs of records are as what comes alone: sizes, kinds of properties, ends of segments and the
    64 KiB within which records share come at any place of a run."""
    chance = random.Random(7)
    async with control(broker) as client:
        definition = {"history": level, "stream-max-segment-size-bytes": 50_000}
        await client.call("policy.put", vhost="/", name="keep", pattern=".*", definition=definition)
    sent: list[tuple[str, dict[str, Any], bytes]] = []
    size, more = 0, {}
    for number in range(4000):
        if chance.random() < 0.1:
            size = chance.choice((0, 16, 16, 300))
        if chance.random() < 0.1:
            more = chance.choice(({}, {}, {"content_type": "a/b"}, {"headers": {"own": 1}}))
        body = number.to_bytes(4) * (size // 4)
        sent.append((f"orders.{number // 700 % 2}", {"message_id": f"m{number}", **more}, body))
    with raw.Client.open((broker.host, broker.amqp_port)) as publisher:
        for name in ("orders.0", "orders.1"):
            publisher.call(1, "queue.declare", queue=name, durable=True)
        publisher.call(1, "confirm.select")
        publisher.send(
            b"".join(
                raw.publish(1, "", name, body, delivery_mode=2, **properties)
                for name, properties, body in sent
            )
        )
        assert set(publisher.expect_confirms(1, len(sent)).values()) == {"basic.ack"}
    rows = await records(broker)
    assert [row["queues"] for row in rows] == [[name] for name, _, _ in sent]
    assert [row["payload_bytes"] for row in rows] == [len(body) for _, _, body in sent]
    for row, (_, properties, _) in zip(rows, sent, strict=True):
        found = row["properties"]
        assert {key: found.get(key) for key in properties} == properties
        assert found.keys() == {"delivery_mode", *properties}
        assert (row["user"], row["exchange"]) == ("guest", "")
    if level == "full":
        assert [row["payload"] for row in rows] == [body for _, _, body in sent]
    broker.end(kill=True)
    broker.start()
    assert await records(broker) == rows


async def test_a_scan_of_the_files_gives_the_headers_that_records_share(broker: Appliance) -> None:
    await publish(broker)
    broker.end(kill=False)
    (path,) = [each for each in files(broker, "msgs.*") if b"x-history-user" in each.read_bytes()]
    scan = Scan(path.read_bytes(), b"", int(path.parent.name, 16), int(path.suffix[1:]), True)
    count, _, _, _, offsets, texts = scan.next(1000, 1 << 20)
    assert (count, len(offsets)) == (COUNT, 8 * COUNT)
    assert bytes(texts[2][1]).count(USER.encode()) == COUNT
    assert scan.next(1000, 1 << 20) is None and not scan.damaged


async def test_records_in_the_object_store_are_read_and_found_with_what_they_share(
    tmp_path: Path,
) -> None:
    processes = Processes(tmp_path).start()
    try:
        await publish(
            processes.broker,
            1200,
            history_keys=f"header:{USER}",
            stream_tier=True,
            stream_local_max_bytes=0,
            stream_max_segment_size_bytes=16384,
        )
        until(lambda: len(processes.objects()) > 1)
        until(lambda: len([each for each in processes.here() if each.stat().st_size > 10000]) <= 2)
        rows = await records(processes.broker)
        assert [row["offset"] for row in rows] == list(range(1200))
        assert {(row["user"], *row["queues"]) for row in rows} == {("guest", "orders")}
        async with control(processes.broker) as client:
            found = await client.call(
                "stream.search",
                vhost="/",
                name=HISTORY,
                key=f"header:{USER}",
                value="guest",
                max=1000,
            )
        # The newest first.
        assert [row["offset"] for row in found["messages"]] == list(range(1199, 199, -1))
    finally:
        processes.close()
