"""Subscriptions: a start, then changes; slow readers, lost rights, brokers that come back."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from broker.schema.control_schema import Request
from broker.server.app import Broker
from management.broker_client import BrokerClient, BrokerError, Push
from tests.inside import publish, put_user


@contextlib.asynccontextmanager
async def pushes(client: BrokerClient, **args: Any) -> AsyncIterator[AsyncIterator[Push]]:
    async with asyncio.timeout(30), contextlib.aclosing(client.subscribe(**args)) as found:
        yield found


async def test_it_starts_the_overview_with_history_and_goes_on_with_changes(
    broker: Broker, client: BrokerClient
) -> None:
    broker.vhosts["/"].declare_queue("q")
    await broker.sampling.once()
    async with pushes(client, topic="overview") as found:
        start = await anext(found)
        assert start.event == "start"
        assert start.data["state"]["object_totals"]["queues"] == 1
        assert len(start.data["history"]["times"]) == 1
        assert start.data["history"]["series"]["messages_ready"] == [0.0]
        publish(broker.vhosts["/"], "q")
        await broker.sampling.once()
        delta = await anext(found)
        assert (delta.event, delta.seq) == ("delta", start.seq + 1)
        assert delta.data["state"]["queue_totals.messages_ready"] == 1
        assert "object_totals.queues" not in delta.data["state"]
        assert delta.data["point"]["messages_ready"] == 1
        assert "publish" in delta.data["point"]


async def test_it_pushes_only_the_rows_and_fields_that_changed(
    broker: Broker, client: BrokerClient
) -> None:
    broker.vhosts["/"].declare_queue("one")
    broker.vhosts["/"].declare_queue("two")
    keys = [["/", "one"], ["/", "two"], ["/", "three"]]
    async with pushes(client, topic="rows", noun="queues", keys=keys) as found:
        start = await anext(found)
        assert [row[0] for row in start.data["rows"]] == keys
        assert start.data["rows"][0][1]["messages"] == 0
        assert start.data["rows"][2][1] is None
        await broker.sampling.once()
        publish(broker.vhosts["/"], "one")
        await broker.sampling.once()
        delta = await anext(found)
        assert len(delta.data["rows"]) == 1
        key, fields = delta.data["rows"][0]
        assert key == ["/", "one"]
        assert fields["messages"] == 1
        assert "consumers" not in fields
        broker.vhosts["/"].delete_queue("two")
        await broker.sampling.once()
        seen = {}
        while ("/", "two") not in seen:
            push = await anext(found)
            seen |= {tuple(key): fields for key, fields in push.data["rows"]}
        assert seen["/", "two"] is None


async def test_it_follows_one_queue_with_its_chart(broker: Broker, client: BrokerClient) -> None:
    broker.vhosts["/"].declare_queue("q")
    async with pushes(client, topic="item", noun="queues", key=["/", "q"]) as found:
        start = await anext(found)
        assert start.data["state"]["name"] == "q"
        assert set(start.data["history"]) == {"step_ms", "times", "series"}
        publish(broker.vhosts["/"], "q")
        await broker.sampling.once()
        delta = await anext(found)
        assert delta.data["state"]["messages_ready"] == 1
        assert delta.data["point"]["messages_ready"] == 1
        broker.vhosts["/"].delete_queue("q")
        await broker.sampling.once()
        with pytest.raises(BrokerError, match="queue_not_found"):
            await anext(found)


async def test_it_pushes_events_to_those_who_may_know(broker: Broker, client: BrokerClient) -> None:
    put_user(broker, "anna", "management")
    put_user(broker, "root", "administrator")
    async with (
        pushes(client, topic="events", as_user="anna") as hers,
        pushes(client, topic="events", as_user="root") as theirs,
    ):
        assert (await anext(hers)).event == "start"
        assert (await anext(theirs)).event == "start"
        broker.definitions.create_vhost("secret").declare_queue("a")
        broker.emit("session.ended", {"session_id": "s"})
        broker.vhosts["/"].declare_queue("b")
        push = await anext(hers)
        assert (push.event, push.data) == ("queue.created", {"vhost": "/", "name": "b"})
        events = [(await anext(theirs)).event for _ in range(3)]
        assert events == ["queue.created", "session.ended", "queue.created"]


async def test_it_ends_a_subscription_with_the_right_to_it(
    broker: Broker, client: BrokerClient
) -> None:
    put_user(broker, "anna", "management")
    async with pushes(client, topic="overview", vhost="/", as_user="anna") as found:
        await anext(found)
        broker.access.delete_permission("anna", "/")
        await broker.sampling.once()
        with pytest.raises(BrokerError, match="not authorised to access virtual host"):
            await anext(found)
    async with pushes(client, topic="overview", as_user="anna") as found:
        await anext(found)
        put_user(broker, "anna")
        await broker.sampling.once()
        with pytest.raises(BrokerError, match="sign in again"):
            await anext(found)


@pytest.mark.parametrize(
    "args",
    [
        {"topic": "rows", "noun": "queues"},
        {"topic": "rows", "noun": "queues", "keys": [["q"]]},
        {"topic": "rows", "noun": "unicorns", "keys": []},
        {"topic": "rows", "noun": "queues", "keys": [["/", "q"]] * 501},
        {"topic": "item", "noun": "queues"},
        {"topic": "weather"},
    ],
)
async def test_it_refuses_a_subscription_to_nothing(
    client: BrokerClient, args: dict[str, Any]
) -> None:
    with pytest.raises(BrokerError) as caught:
        await client.call("subscribe", **args)
    assert caught.value.status == 400


async def test_it_skips_a_slow_reader_and_tells_it_to_start_anew(
    broker: Broker, client: BrokerClient
) -> None:
    await client.call("whoami")
    reader, writer = await asyncio.open_unix_connection(str(client.path), limit=1024)
    await ask(writer, 1, "subscribe", topic="overview")
    frames = [await frame(reader), await frame(reader)]
    assert frames[0]["ok"] == {"sub": 1}
    assert frames[1]["event"] == "start"
    # Answers that nobody reads fill the socket; pushes stop, and nothing piles up behind them.
    (session,) = (one for one in broker.control.sessions if len(one.subscriptions))
    for number in range(100):
        broker.access.put_user(f"user {number}", ["x" * 5000], "", "")
    for number in range(2, 60):
        await ask(writer, number, "list", noun="users")
        if not session.is_writable():
            break
        await asyncio.sleep(0.01)
    assert not session.is_writable()
    buffered = session._writer.transport.get_write_buffer_size
    held = -1
    while held != (held := buffered()):
        for _ in range(1000):  # turns of the loop, in which answers under way come to their end
            await asyncio.sleep(0)
    for _ in range(50):
        await broker.sampling.once()
        await asyncio.sleep(0)
    assert buffered() <= held
    events = []
    async with asyncio.timeout(30):
        sampling = asyncio.create_task(sample(broker))
        while events[-2:] != ["resync", "start"]:
            found = await frame(reader)
            if "event" in found:
                events.append(found["event"])
        sampling.cancel()
    assert events == ["resync", "start"]
    writer.close()


async def sample(broker: Broker) -> None:
    while True:
        await broker.sampling.once()
        await asyncio.sleep(0.01)


async def ask(writer: asyncio.StreamWriter, number: int, verb: str, **args: Any) -> None:
    data = msgspec.msgpack.encode(Request(id=number, verb=verb, args=args))
    writer.write(struct.pack(">I", len(data)) + data)
    await writer.drain()


async def frame(reader: asyncio.StreamReader) -> dict[str, Any]:
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    found: dict[str, Any] = msgspec.msgpack.decode(await reader.readexactly(length))
    return found


async def test_it_tells_a_subscriber_that_the_broker_is_away_and_starts_anew(
    broker: Broker, client: BrokerClient
) -> None:
    async with pushes(client, topic="overview") as found:
        assert (await anext(found)).event == "start"
        await broker.control.close()
        assert (await anext(found)).event == "away"
        await broker.control.start(client.path)
        events = [(await anext(found)).event]
        while events[-1] == "away":
            events.append((await anext(found)).event)
        assert events[-1] == "start"


async def test_it_stops_pushing_when_the_iterator_is_closed(
    broker: Broker, client: BrokerClient
) -> None:
    async with pushes(client, topic="overview") as found:
        await anext(found)
    await client.call("whoami")
    (session,) = broker.control.sessions
    assert not len(session.subscriptions)
    await client.close()
    await asyncio.sleep(0)
    await broker.control.close()
    assert not broker.sampling.listeners


async def test_it_leaves_no_subscription_behind_when_the_asker_gives_up(
    broker: Broker, client: BrokerClient
) -> None:
    await client.call("whoami")
    asking = asyncio.create_task(anext(client.subscribe(topic="overview")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    await client.call("whoami")
    await client.call("whoami")
    (session,) = broker.control.sessions
    assert not len(session.subscriptions)


async def test_it_keeps_no_endless_queue_for_a_reader_that_sleeps(
    broker: Broker, client: BrokerClient
) -> None:
    async with pushes(client, topic="events") as found:
        assert (await anext(found)).event == "start"
        for number in range(400):
            broker.emit("queue.created", {"vhost": "/", "name": str(number)})
            await client.call("whoami")
        assert (await anext(found)).event == "resync"
        assert (await anext(found)).event == "start"
        broker.emit("queue.created", {"vhost": "/", "name": "last"})
        assert (await anext(found)).data == {"vhost": "/", "name": "last"}
