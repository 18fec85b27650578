"""The client on a loop against servers that fail in the middle."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from broker.client.aio import Channel, connect
from broker.client.batch import Batch
from broker.client.errors import ChannelClosed, ConnectionLost, ProtocolError
from broker.client.uri import Endpoint
from broker.wire.argument_lists import frame
from broker.wire.method_frames import method_frame

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LOGIN = (
    method_frame(0, "connection.start", version_minor=9, mechanisms="PLAIN"),
    method_frame(0, "connection.tune", channel_max=10, frame_max=4096, heartbeat=1),
    method_frame(0, "connection.open-ok"),
)


@contextlib.asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[Endpoint]:
    """A server that does as it is told with its connections."""
    tasks: list[asyncio.Task[None]] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(_served(serve, reader, writer)))

    listening = await asyncio.start_server(client, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield Endpoint(port=port, heartbeat=1, connect_timeout=60)
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _served(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await serve(reader, writer)
    finally:
        writer.close()


async def log_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(8)
    for data in LOGIN:
        writer.write(data)


async def until_asked(reader: asyncio.StreamReader, method: bytes) -> None:
    """Reads until a method's numbers have come."""
    seen = b""
    while method not in seen:
        data = await reader.read(4096)
        assert data, "the client ended"
        seen += data


OPEN = b"\0\x14\0\x0a"
DECLARE = b"\0\x32\0\x0a"


async def test_a_server_that_never_answers_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with server(silent) as endpoint:
        with pytest.raises(ConnectionLost, match=r"no login within 0\.2 seconds"):
            await connect(Endpoint(port=endpoint.port, connect_timeout=0.2))


async def test_a_server_that_falls_silent_is_dropped_after_two_heartbeats() -> None:
    async def falls_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer)
        await asyncio.Event().wait()

    async with server(falls_silent) as endpoint:
        connection = await connect(endpoint)
        error = await asyncio.wait_for(connection.ended, 60)
        assert isinstance(error, ConnectionLost)
        assert "nothing came for 2 seconds" in str(error)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", ConnectionLost),
        (method_frame(1, "queue.declare-ok", queue="q")[:9], ConnectionLost),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolError),
        (method_frame(1, "channel.close", reply_code=406, reply_text="no"), ChannelClosed),
    ],
)
async def test_a_call_fails_with_what_happened_to_its_channel(data: bytes, kind: type) -> None:
    async def fails(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer)
        await until_asked(reader, OPEN)
        writer.write(method_frame(1, "channel.open-ok"))
        await until_asked(reader, DECLARE)
        writer.write(data)
        if kind is not ConnectionLost:
            await reader.read()

    async with server(fails) as endpoint:
        connection = await connect(endpoint)
        channel = await connection.open_channel()
        with pytest.raises(kind):
            await asyncio.wait_for(channel.call("queue.declare", queue="q"), 60)
        with pytest.raises(kind):
            await channel.select_confirms()
        connection.abort()


async def test_a_caller_that_stops_waiting_leaves_the_next_reply_alone() -> None:
    """The reply to a call that was cancelled is not taken for the next one's."""

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer)
        await until_asked(reader, OPEN)
        writer.write(method_frame(1, "channel.open-ok"))
        await until_asked(reader, b"second")
        for name in ("first", "second"):
            writer.write(method_frame(1, "queue.declare-ok", queue=name))
        await reader.read()

    async with server(slow) as endpoint:
        connection = await connect(endpoint)
        channel = await connection.open_channel()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(channel.call("queue.declare", queue="first"), 0.05)
        answer = await asyncio.wait_for(channel.call("queue.declare", queue="second"), 60)
        assert answer["queue"] == "second"
        connection.abort()


async def test_a_callback_that_fails_ends_the_connection_and_everything_that_waits() -> None:
    async def delivers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer)
        await until_asked(reader, OPEN)
        writer.write(method_frame(1, "channel.open-ok"))
        await until_asked(reader, b"\0\x3c\0\x14")
        writer.write(method_frame(1, "basic.consume-ok", consumer_tag="leveret-1-1"))
        await until_asked(reader, DECLARE)
        writer.write(
            method_frame(1, "basic.deliver", consumer_tag="leveret-1-1", delivery_tag=1)
            + frame(2, 1, b"\0\x3c\0\0" + bytes(10))
        )
        await reader.read()

    def fail(channel: Channel, batch: Batch) -> None:
        raise ValueError("a defect of the callback")

    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, facts: raised.append(facts))
    async with server(delivers) as endpoint:
        connection = await connect(endpoint)
        channel = await connection.open_channel()
        await channel.consume("q", fail)
        with pytest.raises(ConnectionLost, match="a defect of the callback"):
            await asyncio.wait_for(channel.call("queue.declare", queue="q"), 60)
        assert isinstance(await asyncio.wait_for(connection.ended, 60), ConnectionLost)
    assert any(isinstance(facts.get("exception"), ValueError) for facts in raised)


async def test_a_socket_that_takes_no_more_holds_publishers_back() -> None:
    reading = asyncio.Event()

    async def lazy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await log_in(reader, writer)
        await until_asked(reader, OPEN)
        writer.write(method_frame(1, "channel.open-ok"))
        writer.write(method_frame(0, "connection.blocked", reason="low"))
        writer.write(method_frame(0, "connection.unblocked"))
        await reading.wait()
        while await reader.read(1 << 20):
            pass

    async with server(lazy) as endpoint:
        connection = await connect(endpoint)
        channel = await connection.open_channel()
        body = bytes(1 << 20)
        for _ in range(64):
            if not connection.is_writable:
                break
            channel.core.publish(b"", b"q", b"\0\0", body)
            connection.flush()
            await asyncio.sleep(0)
        assert not connection.is_writable, "64 MiB are more than sockets hold"
        reading.set()
        await asyncio.wait_for(connection.writable(), 60)
        connection.abort()


@pytest.mark.parametrize("is_reset", [False, True])
async def test_an_end_before_the_login_names_the_limit_of_connections(is_reset: bool) -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        if is_reset:
            writer.transport.abort()

    async with server(end) as endpoint:
        with pytest.raises(ConnectionLost) as found:
            await connect(endpoint)
    assert "before the login was over; it may allow no more connections" in str(found.value)
    assert "Errno" not in str(found.value)
