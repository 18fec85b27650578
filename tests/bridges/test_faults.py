"""A shovel when something fails: nothing is lost, doubles are marked, and the row says why."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from broker.client.aio import Connection, connect
from broker.client.message import Message
from broker.wire.method_frames import method_frame
from tests.appliance import Appliance
from tests.bench.processes import free_port
from tests.bridges.conftest import Bench, declare, endpoint_of, publish, ready, taken, until
from tests.bridges.test_refused import is_marked
from tests.client.test_faults import log_in, server, until_asked

CHANNEL_OPEN, CONFIRM_SELECT, PUBLISH = b"\0\x14\0\x0a", b"\0\x55\0\x0a", b"\0\x3c\0\x28"
"""Class and method, as they are on the wire."""


def check_none_lost(found: list[Message], bodies: list[bytes]) -> None:
    """Each body is there; of one that is there twice all but the first are marked."""
    assert {message.body for message in found} == set(bodies)
    for body, count in Counter(message.body for message in found).items():
        marked = sum(is_marked(message) for message in found if message.body == body)
        assert marked >= count - 1, f"{body!r} is there {count} times and {marked} are marked"


async def all_of(connection: Connection, queue: str) -> list[Message]:
    return await taken(connection, queue, await ready(connection, queue), is_there=True)


async def test_a_destination_that_is_away_is_waited_for(bench: Bench, tmp_path: Path) -> None:
    port = free_port()
    bodies = await bench.publish(20)
    uri = f"amqp://guest:guest@127.0.0.1:{port}"
    await bench.put(dest_uri=uri, dest_queue=bench.target)
    row = await bench.until_state("error")
    assert f"127.0.0.1:{port}" in row["reason"]
    assert "refused" in row["reason"].lower()
    assert "guest" not in row["reason"]
    assert row["next_try"] > row["since"]
    assert await ready(bench.here, bench.queue) == 20
    late = Appliance("broker", tmp_path, amqp_port=port)
    try:
        late.start()
        async with await connect(endpoint_of(late)) as there:
            assert [one.body for one in await taken(there, bench.target, 20)] == bodies
        row = await bench.until_state("running")
        assert row["last_error"]
        assert [event["state"] for event in row["history"]][-1] == "running"
    finally:
        late.close()


async def test_a_wrong_password_is_said(bench: Bench, far: Appliance) -> None:
    uri = f"amqp://guest:s3cret-wrong@{far.host}:{far.amqp_port}"
    await bench.put(dest_uri=uri, dest_queue=bench.target)
    row = await bench.until_state("error")
    assert "ACCESS_REFUSED" in row["reason"]
    assert "s3cret-wrong" not in str(row)
    assert "s3cret-wrong" not in bench.pair.bridges.log() + bench.pair.broker.log()


async def test_nothing_is_lost_when_the_destination_is_killed(bench: Bench, tmp_path: Path) -> None:
    far = Appliance("broker", tmp_path, amqp_port=free_port()).start()
    try:
        async with await connect(endpoint_of(far)) as there, there.channel() as channel:
            await declare(channel, bench.target)
        bodies = await bench.publish(6_000, size=200)
        await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target, src_prefetch_count=200)
        for _ in range(3):
            before = (await bench.until_state("running"))["message_count"]
            await bench.until(lambda row, b=before: row["message_count"] > b or not row["pending"])
            far.kill()
            await bench.until_state("error")
            far.start()
        await bench.until(lambda row: row["state"] == "running")

        async def is_empty() -> bool:
            row = await bench.row()
            return (
                await ready(bench.here, bench.queue) == 0
                and row is not None
                and (row["pending"] == 0 and row["state"] == "running")
            )

        await until(is_empty)
        async with await connect(endpoint_of(far)) as there:
            check_none_lost(await all_of(there, bench.target), bodies)
    finally:
        far.close()


async def test_nothing_is_lost_when_the_process_of_shovels_is_killed(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    async with there.channel() as channel:
        await declare(channel, bench.target)
    bodies = await bench.publish(6_000, size=200)
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target, src_prefetch_count=200)
    for _ in range(3):

        async def has_moved(before: int = await ready(there, bench.target)) -> bool:
            now = await ready(there, bench.target)
            return now > before or now >= len(bodies)

        await until(has_moved)
        bench.pair.bridges.kill()
        bench.pair.bridges.start(wait=False)

    async def is_empty() -> bool:
        row = await bench.row()
        return (
            await ready(bench.here, bench.queue) == 0
            and row is not None
            and (row["pending"] == 0 and row["state"] == "running")
        )

    await until(is_empty)
    check_none_lost(await all_of(there, bench.target), bodies)


async def test_a_stopped_process_of_shovels_costs_clients_nothing(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target)
    await bench.until_state("running")
    bench.pair.bridges.signal(signal.SIGSTOP, None)
    try:
        other = f"{bench.queue}-other"
        await bench.declare(other)
        bodies = await bench.publish(1000, other)
        assert [one.body for one in await taken(bench.here, other, 1000)] == bodies
        assert await bench.row() is not None
    finally:
        bench.pair.bridges.signal(signal.SIGCONT, None)
    bodies = await bench.publish(3)
    assert [one.body for one in await taken(there, bench.target, 3)] == bodies


async def test_a_destination_that_blocks_is_waited_for(bench: Bench, tmp_path: Path) -> None:
    full = Appliance("broker", tmp_path, disk_free_limit="8000 TiB").start()
    try:
        await bench.publish(5)
        await bench.put(dest_uri=full.amqp_url, dest_queue=bench.target)
        row = await bench.until_state("blocked")
        assert "blocks publishers" in row["reason"]
        assert row["message_count"] == 0
    finally:
        full.kill()
    await bench.until_state("error")
    await bench.put(dest_queue=bench.target)
    assert len(await taken(bench.here, bench.target, 5)) == 5


async def test_a_deleted_source_queue_is_said(bench: Bench) -> None:
    await bench.put(dest_queue=bench.target, src_predeclared=True)
    await bench.until_state("running")
    async with bench.here.channel() as channel:
        await channel.call("queue.delete", queue=bench.queue)
    row = await bench.until_state("error")
    assert bench.queue in row["reason"]


async def test_a_peer_that_says_nothing_is_given_up(bench: Bench) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        uri = f"amqp://guest:guest@127.0.0.1:{port}/?connection_timeout=500"
        await bench.put(dest_uri=uri, dest_queue=bench.target)
        row = await bench.until_state("error")
    assert "no login within 0.5 seconds" in row["reason"]


async def test_a_name_that_does_not_exist_is_said(bench: Bench) -> None:
    await bench.put(dest_uri="amqp://no-such-host.invalid", dest_queue=bench.target)
    row = await bench.until_state("error")
    assert "the name no-such-host.invalid cannot be resolved" in row["reason"]


async def test_nothing_is_lost_when_the_destination_closes_the_channel_in_the_middle(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    async with there.channel() as channel:
        await channel.call("exchange.declare", exchange=bench.target, type="fanout")
        await declare(channel, bench.target)
        await channel.call("queue.bind", queue=bench.target, exchange=bench.target)
        await bench.put(dest_uri=far.amqp_url, dest_exchange=bench.target)
        first = await bench.publish(5)
        await bench.until(lambda row: row["counts"]["moved"] == 5)
        await channel.call("exchange.delete", exchange=bench.target)
        rest = await bench.publish(5)
        row = await bench.until_state("error")
        assert f"no exchange '{bench.target}'" in row["reason"]
        await channel.call("exchange.declare", exchange=bench.target, type="fanout")
        await channel.call("queue.bind", queue=bench.target, exchange=bench.target)
    check_none_lost(await taken(there, bench.target, 10), first + rest)


@pytest.mark.parametrize("answer", ["refuses confirms", "confirms nothing"])
async def test_nothing_is_lost_at_a_destination_without_confirms(bench: Bench, answer: str) -> None:
    """A server that closes the connection at confirm.select, or takes messages and says no more."""
    got = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer)
        await until_asked(reader, CHANNEL_OPEN)
        writer.write(method_frame(1, "channel.open-ok"))
        await until_asked(reader, CONFIRM_SELECT)
        if answer == "refuses confirms":
            facts = {"reply_code": 540, "reply_text": "NOT_IMPLEMENTED - no confirms here"}
            writer.write(method_frame(0, "connection.close", **facts, class_id=85, method_id=10))
            await reader.read()
            return
        writer.write(method_frame(1, "confirm.select-ok"))
        await until_asked(reader, PUBLISH)
        got.set()
        await reader.read()

    await bench.publish(3)
    async with server(serve) as endpoint:
        uri = f"amqp://guest:guest@127.0.0.1:{endpoint.port}"
        await bench.put(dest_uri=uri, dest_exchange="", dest_exchange_key="k")
        if answer == "refuses confirms":
            row = await bench.until_state("error")
            assert "no confirms here" in row["reason"]
        else:
            await asyncio.wait_for(got.wait(), 60)
            row = await bench.until_state("error")
            assert "nothing came for" in row["reason"]
            assert row["counts"]["moved"] == 0
    await bench.put(dest_queue=bench.target)
    assert len(await taken(bench.here, bench.target, 3)) == 3


async def test_zero_as_reconnect_delay_stops_it_at_the_first_failure(bench: Bench) -> None:
    uri = "amqp://guest:guest@127.0.0.1:1"
    await bench.put(dest_uri=uri, dest_queue=bench.target, reconnect_delay=0)
    row = await bench.until_state("stopped")
    assert row["next_try"] is None
    await bench.control.call("shovel.restart", vhost="/", name=bench.shovel)
    await bench.until(lambda row: row["state"] == "stopped" and len(row["history"]) > 1)


async def test_shovels_go_on_after_a_restart_of_the_broker(bench: Bench) -> None:
    await bench.put(dest_queue=bench.target)
    await bench.until_state("running")
    broker = bench.pair.broker
    port = broker.amqp_port
    await bench.control.close()
    broker.kill()
    broker.settings["amqp_port"] = port
    broker.start()
    row = await bench.until_state("running")
    assert row["owner"] == "guest"
    async with await connect(endpoint_of(broker)) as here:
        async with here.channel() as channel:
            bodies = await publish(channel, bench.queue, 7)
        assert [one.body for one in await taken(here, bench.target, 7)] == bodies
