"""The random index of streams, by the control socket: what it finds, and what it says when it
cannot know."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.fields.codec import Binary, Long
from management.broker_client import BrokerClient, BrokerError
from tests.amqp import streams
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.control.policed import put
from tests.control.test_real_broker import control, until


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


@pytest.fixture
def amqp(shared_broker: Appliance) -> Iterator[Client]:
    with Client.open((shared_broker.host, shared_broker.amqp_port)) as client:
        yield client


async def search(client: BrokerClient, stream: str, value: str, **args: Any) -> Any:
    return await client.call(
        "stream.search", **{"vhost": "/", "name": stream, "value": value, **args}
    )


def offsets(answer: Any) -> list[int]:
    return [message["offset"] for message in answer["messages"]]


async def test_it_finds_a_message_by_each_of_its_keys(client: BrokerClient, amqp: Client) -> None:
    stream = streams.declare(
        amqp, x_stream_index="message_id, correlation_id,header:order_id,header:paid,header:big"
    )
    for number in range(30):
        streams.fill(
            amqp,
            stream,
            b"body %d" % number,
            message_id=f"m{number}",
            correlation_id=f"c{number % 3}",
            headers={
                "before": {"order_id": "no"},
                "order_id": 4700 + number,
                "paid": number % 2 == 0,
                "big": 2**40 + number,
            },
        )
    found = await search(client, stream, "m7", key="message_id")
    assert offsets(found) == [7]
    (row,) = found["messages"]
    assert row["payload"] == b"body 7"
    assert row["properties"]["message_id"] == "m7"
    assert row["properties"]["headers"]["order_id"] == 4707
    assert found["complete"] and found["whole_from"] is None
    assert offsets(await search(client, stream, "c1", key="correlation_id", max=3)) == [28, 25, 22]
    assert offsets(await search(client, stream, "4711", key="header:order_id")) == [11]
    # The name of a header does without its prefix.
    assert offsets(await search(client, stream, "4711", key="order_id")) == [11]
    assert offsets(await search(client, stream, "false", key="paid", max=2)) == [29, 27]
    assert offsets(await search(client, stream, str(2**40 + 5), key="big")) == [5]
    assert offsets(await search(client, stream, "no", key="order_id")) == []


@pytest.mark.parametrize("key", ["", "ö", "a b", "x" * 250, "*", "%", "'"])
async def test_any_text_is_a_key(client: BrokerClient, amqp: Client, key: str) -> None:
    stream = streams.declare(amqp, x_stream_index=["message_id", "header:id"])
    streams.fill(amqp, stream, b"1", message_id=key)
    streams.fill(amqp, stream, b"2", message_id="another")
    streams.fill(amqp, stream, b"3", headers={"id": key * 200})
    streams.fill(amqp, stream, b"4", headers={"id": 1.5})
    assert offsets(await search(client, stream, key, key="message_id")) == [0]
    assert offsets(await search(client, stream, key * 200, key="id")) == [2]


@pytest.mark.parametrize("key", [b"k" * 65_536, b"\xff\x00\x80 key", bytes(range(256))])
async def test_long_and_binary_keys_are_found_whole(
    client: BrokerClient, amqp: Client, key: bytes
) -> None:
    stream = streams.declare(amqp, x_stream_index="header:id")
    for value in (key, key[:-1], key + b"x"):
        streams.fill(amqp, stream, b"", headers={"id": Binary(value)})
    assert offsets(await search(client, stream, "", octets=key, key="id")) == [0]


async def test_it_searches_a_range_of_time(client: BrokerClient, amqp: Client) -> None:
    stream = streams.declare(amqp, x_stream_index="message_id")
    streams.fill(amqp, stream, *(b"%d" % number for number in range(20)), message_id="same")
    rows = (await search(client, stream, "same", max=100))["messages"]
    assert [row["offset"] for row in rows] == list(reversed(range(20)))
    times = {row["offset"]: row["timestamp"] for row in rows}
    first, last = times[5], times[15]
    found = await search(client, stream, "same", max=100, first=first, last=last)
    assert offsets(found) == [n for n in reversed(range(20)) if first <= times[n] <= last]
    assert offsets(await search(client, stream, "same", last=times[0] - 1)) == []


async def test_it_says_what_is_wrong_with_a_search(client: BrokerClient, amqp: Client) -> None:
    plain = streams.declare(amqp)
    stream = streams.declare(amqp, x_stream_index="message_id,header:a")
    queue = amqp.call(1, "queue.declare", exclusive=True).queue
    for name, args, text in (
        (plain, {}, "has no index: set x-stream-index"),
        (queue, {}, "is no stream"),
        (stream, {}, "not indexed by '', but by message_id, header:a"),
        (stream, {"key": "header:b"}, "not indexed by 'header:b'"),
        (stream, {"key": "a", "max": 0}, "stream_search_results_max"),
        (stream, {"key": "a", "max": 1001}, "stream_search_results_max"),
        (stream, {"key": "a", "first": 2, "last": 1}, "ends before it begins"),
        (f"{stream}-none", {"key": "a"}, "no queue"),
    ):
        with pytest.raises(BrokerError, match=text):
            await search(client, name, "x", **args)


async def test_it_asks_for_the_read_permission_first(client: BrokerClient, amqp: Client) -> None:
    stream = streams.declare(amqp, x_stream_index="message_id")
    streams.fill(amqp, stream, b"x", message_id="a")
    user = f"{stream}-user"
    await client.call("user.put", name=user, password="long enough", tags=["management"])
    try:
        await client.call(
            "permission.put", vhost="/", user=user, configure=".*", write=".*", read="other"
        )
        for name, key in ((stream, "message_id"), (stream, "no key"), ("none", "message_id")):
            with pytest.raises(BrokerError) as refused:
                await search(client, name, "a", key=key, as_user=user)
            assert refused.value.status == 401, (name, key, refused.value)
    finally:
        await client.call("user.delete", name=user)


async def test_a_policy_indexes_what_is_there_already(policing: BrokerClient, amqp: Client) -> None:
    stream = streams.declare(amqp)
    streams.fill(amqp, stream, b"before", message_id="a", correlation_id="a")
    await put(policing, stream, {"stream-index": ["message_id"]})
    streams.fill(amqp, stream, b"after", message_id="a", correlation_id="a")
    found = await search(policing, stream, "a")
    assert offsets(found) == [1, 0] and found["whole_from"] is None
    await put(policing, stream, {"stream-index": "message_id, correlation_id"})
    await until(
        lambda: search(policing, stream, "a", key="correlation_id"),
        lambda answer: answer["whole_from"] is not None,
    )
    streams.fill(amqp, stream, b"later", correlation_id="a")
    found = await search(policing, stream, "a", key="correlation_id")
    assert offsets(found) == [2]
    assert found["whole_from"] <= found["messages"][0]["timestamp"]
    await policing.call("policy.delete", vhost="/", name=stream)
    with pytest.raises(BrokerError, match="has no index"):
        await search(policing, stream, "a")


async def test_large_messages_are_found(client: BrokerClient, amqp: Client) -> None:
    stream = streams.declare(amqp, x_stream_index="message_id")
    for number in range(3):
        streams.fill(amqp, stream, bytes(9 << 20), message_id=f"large {number}")
        streams.fill(amqp, stream, b"small", message_id=f"small {number}")
    for number in range(3):
        found = await search(client, stream, f"large {number}", truncate=10)
        assert offsets(found) == [2 * number]
        assert found["messages"][0]["payload_bytes"] == 9 << 20
        assert len(found["messages"][0]["payload"]) == 10
        assert offsets(await search(client, stream, f"small {number}")) == [2 * number + 1]


def indexes(broker: Appliance) -> list[Path]:
    return list(broker.data_dir.glob("vhosts/*/index"))


async def restarted(broker: Appliance, kill: bool) -> None:
    broker.end(kill=kill)
    broker.start()


@pytest.fixture
def broker(make_broker: Callable[[], Appliance]) -> Appliance:
    return make_broker()


@pytest.fixture
def kept(broker: Appliance) -> str:
    """A stream with an index on a broker of the test's own: small segments, 400 messages."""
    with streams.connect(broker) as amqp:
        stream = streams.declare(
            amqp, x_stream_index="header:id", x_stream_max_segment_size_bytes=65536
        )
        for number in range(20):
            for each in range(20):
                amqp.publish(1, "", stream, bytes(500), headers={"id": f"{number}-{each}"})
        streams.until(lambda: streams.kept(amqp, stream) == 400)
        streams.fill(amqp, stream, b"last", headers={"id": "last"})
    return stream


async def check(broker: Appliance, stream: str) -> None:
    async with control(broker) as client:
        for number in range(0, 400, 37):
            found = await search(client, stream, f"{number // 20}-{number % 20}")
            assert offsets(found) == [number] and found["complete"], found
        assert offsets(await search(client, stream, "last")) == [400]


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "stopped"])
async def test_it_goes_on_after_a_restart(broker: Appliance, kept: str, kill: bool) -> None:
    await check(broker, kept)
    await restarted(broker, kill)
    await check(broker, kept)
    with streams.connect(broker) as amqp:
        streams.fill(amqp, kept, b"more", headers={"id": "more"})
    async with control(broker) as client:
        assert offsets(await search(client, kept, "more")) == [401]


async def test_a_lost_index_is_made_again(broker: Appliance, kept: str) -> None:
    await check(broker, kept)
    broker.end(kill=True)
    shutil.rmtree(*indexes(broker))
    broker.start()
    await check(broker, kept)


async def test_an_index_that_is_ahead_of_its_stream_begins_again(
    broker: Appliance, kept: str
) -> None:
    """As where the streams are put back from an earlier backup than the index."""
    await check(broker, kept)
    broker.end(kill=False)
    for path in sorted(broker.data_dir.glob("vhosts/*/queues/*/msgs.*"))[1:]:
        path.unlink()
    broker.start()
    async with control(broker) as client:
        assert offsets(await search(client, kept, "19-19")) == []
        with streams.connect(broker) as amqp:
            streams.fill(amqp, kept, b"new", headers={"id": "new"})
        assert len(offsets(await search(client, kept, "new"))) == 1
        assert offsets(await search(client, kept, "0-5")) == [5]


async def test_damaged_messages_hide_no_others(broker: Appliance, kept: str) -> None:
    broker.end(kill=True)
    for path in indexes(broker):
        shutil.rmtree(path)
    first = sorted(broker.data_dir.glob("vhosts/*/queues/*/msgs.*"))[0]
    content = bytearray(first.read_bytes())
    # The third message or so, and what a power cut makes of a page.
    content[1500:1510] = bytes(10)
    content[20_000:24_096] = bytes(4096)
    first.write_bytes(content)
    broker.start()
    async with control(broker) as client:
        read = await client.call("stream.read", vhost="/", name=kept, offset="first", count=500)
        there = {row["offset"]: row["properties"]["headers"]["id"] for row in read}
        assert 380 < len(there) < 401
        for offset in range(0, 401, 9):
            key = f"{offset // 20}-{offset % 20}" if offset < 400 else "last"
            found = offsets(await search(client, kept, key))
            assert found == ([offset] if offset in there else []), offset


async def test_the_index_goes_with_its_streams(broker: Appliance, kept: str) -> None:
    await check(broker, kept)
    async with control(broker) as client:
        await client.call("vhost.put", name="other")
        await client.call(
            "permission.put", vhost="other", user="guest", configure=".*", write=".*", read=".*"
        )
        arguments = {"x-queue-type": "stream", "x-stream-index": "message_id"}
        await client.call(
            "queue.declare", vhost="other", name="s", durable=True, arguments=arguments
        )
        assert await search(client, "s", "x", vhost="other")
        assert len(indexes(broker)) == 2
        await client.call("vhost.delete", name="other")
        streams.until(lambda: len(indexes(broker)) == 1)
        await client.call("queue.delete", vhost="/", name=kept)
        with pytest.raises(BrokerError, match="no queue"):
            await search(client, kept, "1-1")


async def test_stored_keys_of_other_types_are_texts(client: BrokerClient, amqp: Client) -> None:
    stream = streams.declare(amqp, x_stream_index="header:n")
    for value in (-1, 0, 2**31, Long(5), Binary(b"\xff"), None, [1], {"a": 1}, True):
        streams.fill(amqp, stream, b"x", headers={"n": value})
    for text, found in (("-1", [0]), ("0", [1]), (str(2**31), [2]), ("5", [3]), ("true", [8])):
        assert offsets(await search(client, stream, text)) == found


async def test_its_files_are_counted(client: BrokerClient, amqp: Client) -> None:
    stream = streams.declare(amqp, x_stream_index="message_id")
    streams.fill(amqp, stream, b"x", message_id="a")
    await search(client, stream, "a")
    row = await client.call("item", noun="queues", vhost="/", name=stream)
    shown = row["stream"]["index"]
    assert shown["keys"] == ["message_id"] and shown["problem"] == ""
    assert shown["files"]["unsealed"]["files"] >= 1
    assert shown["files"]["unsealed"]["items"] >= 1
    metrics = (await client.call("metrics"))["body"].decode()
    assert 'rabbitmq_stream_index_items{state="unsealed"}' in metrics
    assert 'rabbitmq_stream_index_files{state="compacted"}' in metrics
