"""Replaying messages of a stream: which they are, what they look like, and how fast they come."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.control.replaying import offsets, replay, replayed, taken
from tests.control.test_real_broker import control
from tests.control.transferring import bodies, filled, held, publish, queue, start, until

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


async def test_a_range_of_offsets_comes_in_order_with_headers_that_tell_of_the_replay(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    stream, target = filled(channel, 200, **STREAM), queue(channel)
    before = time.time_ns() // 1_000_000
    row = await replayed(client, stream, target, first_offset=20, last_offset=169)
    assert (row["state"], row["mode"], row["handed_over"]) == ("finished", "replay", 150)
    assert (row["first_offset"], row["last_offset"], row["total"]) == (20, 169, 150)
    found = taken(channel, target)
    assert [each.body for each in found] == bodies(*range(20, 170))
    assert offsets(found) == list(range(20, 170))
    first = found[0]
    assert (first.routing_key, first.redelivered) == (stream, False)
    assert first.properties.message_id == "20"
    headers = first.properties.headers
    assert 0 < headers.pop("x-replay-timestamp") <= before
    assert headers == {
        "number": 20,
        "kind": "even",
        "x-replay-stream": stream,
        "x-replay-offset": 20,
        "x-replay-id": row["id"],
    }


async def test_without_a_range_all_of_the_stream_comes_and_what_comes_later_does_not(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    stream = filled(channel, 30, **STREAM)
    target = queue(channel, **{"x-max-length": 10, "x-overflow": "reject-publish"})
    started = await replay(client, stream, target)
    await until(client, started["id"], "blocked")
    publish(channel, stream, range(30, 40))
    found = []
    while len(found) < 30:
        found += held(channel, target)
    row = await until(client, started["id"], "finished")
    assert found == bodies(*range(30))
    assert held(channel, target) == []
    assert row["left"] == 0


async def test_a_range_of_time_takes_what_the_stream_got_in_it(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    stream, target = filled(channel, 60, **STREAM), queue(channel)
    rows = await client.call("stream.read", vhost="/", name=stream, offset="first", count=60)
    times = [row["timestamp"] for row in rows]
    await replayed(client, stream, target, first=times[20], last=times[40])
    wanted = [n for n in range(60) if times[20] <= times[n] <= times[40]]
    assert offsets(taken(channel, target)) == wanted
    row = await replayed(client, stream, target, last=times[0] - 1)
    assert (row["total"], row["handed_over"]) == (0, 0)


async def test_a_search_result_comes_in_the_order_of_the_stream(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    stream = queue(channel, **STREAM, **{"x-stream-index": "header:kind,message_id"})
    publish(channel, stream, range(300))
    target = queue(channel)
    started = await replay(client, stream, target, key="kind", value="odd", max=50)
    assert started["complete"] and started["reasons"] == []
    assert (started["search"], started["total"]) == ("header:kind=odd", 50)
    await until(client, started["id"], "finished")
    assert offsets(taken(channel, target)) == list(range(201, 300, 2))
    evens: dict[str, Any] = {"key": "kind", "value": "even"}
    await replayed(client, stream, target, **evens, first_offset=10, last_offset=20)
    assert offsets(taken(channel, target)) == [10, 12, 14, 16, 18, 20]
    with pytest.raises(BrokerError, match="has this key in this range"):
        await replay(client, stream, target, key="message_id", value="no such")


async def test_a_filter_and_a_limit_take_a_part(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    stream, target = filled(channel, 100, **STREAM), queue(channel)
    wanted: dict[str, Any] = {"header": "kind", "header_value": "even", "limit": 7}
    row = await replayed(client, stream, target, first_offset=11, **wanted)
    assert offsets(taken(channel, target)) == list(range(12, 26, 2))
    assert row["handed_over"] == 7


async def test_an_exchange_routes_replayed_messages_by_their_keys(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    stream, target = filled(channel, 5, **STREAM), queue(channel)
    channel.queue_bind(target, "amq.direct", stream)
    await replayed(client, stream, "amq.direct", target_type="exchange")
    assert held(channel, target) == bodies(*range(5))


async def test_messages_older_than_a_ttl_of_the_target_live_from_the_replay_on(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    stream, target = filled(channel, 3, **STREAM), queue(channel, **{"x-message-ttl": 3_600_000})
    copied = queue(channel)
    await replayed(client, stream, target)
    rows = await client.call("queue.peek", vhost="/", name=target, count=3)
    again = queue(channel, **STREAM)
    await replayed(client, stream, again)
    # A replay of a replay says where its messages came from last.
    await replayed(client, again, copied)
    assert len(rows) == 3
    found = taken(channel, copied)
    assert {each.properties.headers["x-replay-stream"] for each in found} == {again}
    assert "x-stream-offset" not in found[0].properties.headers


async def test_it_keeps_to_its_rate_pauses_and_goes_on_faster(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    stream, target = filled(channel, 400, **STREAM), queue(channel)
    begun = time.monotonic()
    started = await replay(client, stream, target, rate=50)
    id = started["id"]
    await until(client, id, "running")
    while True:
        (row,) = [each for each in await client.call("transfer.list") if each["id"] == id]
        if row["handed_over"] >= 10:
            break
    # A tenth of a second's worth may come at once, and what the time since the start allows for.
    assert row["handed_over"] <= 50 * (time.monotonic() - begun) + 6
    assert await client.call("transfer.pause", id=id) == {"state": "paused"}
    row = await until(client, id, "paused")
    await client.call("transfer.pause", id=id)
    assert await client.call("transfer.resume", id=id, rate=0) == {"state": "waiting"}
    row = await until(client, id, "finished")
    assert row["handed_over"] == 400 and row["rate"] == 0
    found = taken(channel, target)
    assert offsets(found) == list(range(400))
    assert not any(each.redelivered for each in found)
    with pytest.raises(BrokerError, match="is finished and does not go on"):
        await client.call("transfer.pause", id=id)
    with pytest.raises(BrokerError, match="is finished and does not go on"):
        await client.call("transfer.resume", id=id)


async def test_a_paused_transfer_makes_room_for_another_one_of_its_source(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, slow, target = filled(channel, 50), queue(channel), queue(channel)
    first = await start(client, "move", source, slow, rate=1)
    await until(client, first["id"], "running")
    second = await start(client, "move", source, target, header="kind", value="odd")
    await client.call("transfer.pause", id=first["id"])
    await until(client, second["id"], "finished")
    (row,) = [each for each in await client.call("transfer.list") if each["id"] == first["id"]]
    assert row["state"] == "paused"
    await client.call("transfer.resume", id=first["id"], rate=100_000)
    await until(client, first["id"], "finished")
    moved = held(channel, slow) + held(channel, target)
    assert sorted(map(int, moved)) == list(range(50))
    assert held(channel, source) == []


BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": "QUEUE"}, "is no stream"),
    ({"name": "nothing.there"}, "no queue 'nothing.there'"),
    ({"target": "STREAM"}, "source and target are the same queue"),
    ({"target": "nothing.there"}, "no queue 'nothing.there'"),
    ({"first_offset": -1}, "first_offset must be from 0"),
    ({"last_offset": 2**62}, "last_offset must be from 0"),
    ({"first_offset": 2, "last_offset": 1}, "ends before it begins"),
    ({"first": 2, "last": 1}, "ends before it begins"),
    ({"first_offset": 2, "first": 1}, "an offset or a time: 'first_offset' or 'first'"),
    ({"last_offset": 2, "last": 1}, "an offset or a time: 'last_offset' or 'last'"),
    ({"key": "message_id"}, "a search needs a 'value', too"),
    ({"value": "x"}, "has no index"),
    ({"rate": 0}, "rate must be 1 or more"),
    ({"rate": 10**9}, "10000000 at most"),
    ({"limit": 0}, "limit must be 1 or more"),
    ({"routing_key": "("}, "routing_key: invalid regular expression"),
    ({"header": "a"}, "needs both 'header' and 'header_value'"),
]


@pytest.mark.parametrize(("wrong", "text"), BAD, ids=[str(each[0])[:40] for each in BAD])
async def test_bad_input_is_refused_in_clear_words(
    client: BrokerClient, channel: BlockingChannel, wrong: dict[str, Any], text: str
) -> None:
    names = {"STREAM": filled(channel, 1, **STREAM), "QUEUE": queue(channel)}
    asked = {"name": names["STREAM"], "target": names["QUEUE"]} | wrong
    asked = {key: names.get(str(value), value) for key, value in asked.items()}
    with pytest.raises(BrokerError) as refused:
        await client.call("transfer.replay", vhost="/", **asked)
    assert text in str(refused.value)


async def test_metrics_count_what_was_replayed(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    async def counted(name: str) -> float:
        page = (await client.call("metrics"))["body"].decode()
        (value,) = [row.split(" ")[1] for row in page.splitlines() if row.startswith(f"{name} ")]
        return float(value)

    messages = 'rabbitmq_transfer_messages_total{mode="replay"}'
    size = 'rabbitmq_transfer_bytes_total{mode="replay"}'
    before, size_before = await counted(messages), await counted(size)
    stream, target = filled(channel, 10, **STREAM), queue(channel)
    await replayed(client, stream, target)
    assert await counted(messages) - before == 10
    assert await counted(size) - size_before == 10
    assert await counted('rabbitmq_transfers{state="finished"}') >= 1
    assert await counted('rabbitmq_transfers{state="paused"}') >= 0
