"""Streams as the control socket shows them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from management.broker_client import BrokerClient, BrokerError
from tests.amqp import streams
from tests.amqp.raw import Client
from tests.amqp.streams import Reader
from tests.appliance import Appliance
from tests.control.test_real_broker import control, until


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


@pytest.fixture
def amqp(shared_broker: Appliance) -> Iterator[Client]:
    with Client.open((shared_broker.host, shared_broker.amqp_port)) as client:
        yield client


async def shown(client: BrokerClient, name: str) -> Any:
    return await client.call("item", noun="queues", vhost="/", name=name)


async def read(client: BrokerClient, name: str, **args: Any) -> list[Any]:
    found: list[Any] = await client.call("stream.read", vhost="/", name=name, **args)
    return found


async def test_it_reads_only_segments_that_may_hold_what_is_wanted(
    client: BrokerClient, amqp: Client
) -> None:
    stream = streams.declare(amqp, x_stream_max_segment_size_bytes=4096)
    for number in range(100):
        value = "rare" if number in (40, 41, 77) else f"common-{number % 7}"
        headers = {"x-stream-filter-value": value}
        streams.fill(amqp, stream, b"%03d" % number * 300, headers=headers)
    segments = (await shown(client, stream))["segments"]
    assert segments > 20
    reader = Reader(amqp, stream, x_stream_offset="first", x_stream_filter="rare")
    assert [streams.offset(message) for message in reader.take(3)] == [40, 41, 77]
    reader.is_at_end()
    row = await shown(client, stream)
    skipped = row["stream"]["segments_skipped"]
    assert segments - 4 <= skipped <= segments - 2
    (consumer,) = row["consumer_details"]
    assert consumer["stream"] == {
        "offset": 100,
        "lag": 0,
        "segments_skipped": skipped,
        "filtered": True,
        "tracked": False,
    }
    reader.close()
    assert (await shown(client, stream))["stream"]["segments_skipped"] == skipped


async def test_it_shows_what_a_stream_has(client: BrokerClient, amqp: Client) -> None:
    stream = streams.declare(amqp)
    assert (await shown(client, stream))["stream"] == {
        "first_offset": 0,
        "next_offset": 0,
        "first_timestamp": None,
        "last_timestamp": None,
        "index": None,
        "dropped": 0,
        "segments_skipped": 0,
        "unreadable_bytes": 0,
        "consumer_offsets": [],
        "consumer_offsets_max": 10_000,
        "consumer_offsets_forgotten": 0,
        "tier": None,
    }
    before = time.time_ns() // 1_000_000 - 1000
    streams.fill(amqp, stream, b"a", b"bc", b"d")
    reader = Reader(
        amqp,
        stream,
        tag="mine",
        x_stream_offset="first",
        x_stream_automatic_offset_tracking=True,
    )
    reader.take(2)
    reader.take(1, ack=False)
    reader.is_at_end()
    row = await shown(client, stream)
    assert (row["type"], row["state"]) == ("stream", "running")
    assert row["trouble"] in ("idle", "fine")
    assert (row["messages"], row["messages_ready"], row["messages_unacknowledged"]) == (3, 3, 0)
    assert row["message_bytes"] == 4
    figures = row["stream"]
    assert (figures["first_offset"], figures["next_offset"]) == (0, 3)
    assert before < figures["first_timestamp"] <= figures["last_timestamp"]
    assert figures["consumer_offsets"] == [{"consumer_tag": "mine", "offset": 1}]
    (consumer,) = row["consumer_details"]
    assert consumer["unacked"] == 1
    assert consumer["queue"] == {"name": stream, "vhost": "/"}
    listed = await client.call("list", noun="consumers", vhost="/", queue=stream)
    assert [each["consumer_tag"] for each in listed["items"]] == ["mine"]
    assert row["message_stats"]["deliver"] == 3
    assert row["message_stats"]["ack"] == 2


READS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "first": ({"count": 2}, [0, 1]),
    "last": ({"offset": "last", "count": 5}, [4]),
    "next": ({"offset": "next", "count": 5}, []),
    "number": ({"offset": 3, "count": 5}, [3, 4]),
    "digits": ({"offset": "3", "count": 1}, [3]),
    "negative": ({"offset": -2, "count": 1}, [3]),
    "interval": ({"offset": "1h", "count": 9}, [0, 1, 2, 3, 4]),
    "none": ({"count": 0}, []),
}


@pytest.mark.parametrize("case", READS)
async def test_it_lets_people_look(client: BrokerClient, amqp: Client, case: str) -> None:
    args, offsets = READS[case]
    stream = streams.declare(amqp)
    for number in range(5):
        streams.fill(amqp, stream, b"%d" % number * 1000, headers={"n": number}, type="t")
    rows = await read(client, stream, truncate=10, **args)
    assert [row["offset"] for row in rows] == offsets
    for row in rows:
        number = row["offset"]
        assert row["payload"] == b"%d" % number * 10
        assert row["payload_bytes"] == 1000
        headers = {"x-stream-offset": number, "n": number}
        assert row["properties"] == {"headers": headers, "type": "t"}
        assert (row["exchange"], row["routing_key"]) == ("", stream)
    assert (await shown(client, stream))["messages"] == 5


@pytest.mark.parametrize("offset", ["middle", "", "1.5", "٣", "9" * 30])
async def test_it_refuses_offsets_that_are_none(
    client: BrokerClient, amqp: Client, offset: str
) -> None:
    stream = streams.declare(amqp)
    with pytest.raises(BrokerError, match="offset") as refusal:
        await read(client, stream, offset=offset)
    assert refusal.value.status == 400


async def test_it_reads_nothing_but_streams(client: BrokerClient, amqp: Client, name: str) -> None:
    amqp.call(1, "queue.declare", queue=name)
    with pytest.raises(BrokerError, match="is no stream"):
        await read(client, name)
    with pytest.raises(BrokerError) as refusal:
        await read(client, f"{name}-missing")
    assert refusal.value.status == 404
    stream = streams.declare(amqp)
    with pytest.raises(BrokerError, match="not supported by stream queues"):
        await client.call("queue.get", vhost="/", name=stream)
    with pytest.raises(BrokerError, match="count"):
        await read(client, stream, count=-1)


async def test_policies_reach_streams(client: BrokerClient, amqp: Client) -> None:
    stream = streams.declare(amqp)
    before = streams.declare(amqp, x_stream_max_segment_size_bytes=4096)
    for number in range(10):
        streams.fill(amqp, before, b"%d" % number * 1000)
    await client.call(
        "policy.put",
        vhost="/",
        name=stream,
        pattern=f"^({stream}|{before})$",
        definition={"max-length": 3, "stream-max-segment-size-bytes": 4096},
        apply_to="streams",
    )

    async def kept() -> Any:
        return (await shown(client, before))["messages"]

    await until(kept, lambda count: count <= 3)
    for number in range(10):
        streams.fill(amqp, stream, b"%d" % number * 1000)
    before = stream
    await until(kept, lambda count: count <= 3)
    await client.call("policy.delete", vhost="/", name=stream)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return request.node.name
