"""The door itself: who may open it, what it lets through, and what it answers to the rest."""

import asyncio
import contextlib
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from broker.server.websocket import GONE_AFTER_S
from tests.websocket.conftest import Listen

AMQP_HEADER = b"AMQP\x00\x00\x09\x01"


@pytest.mark.parametrize("path", ["/", "/ws/mqtt", "/any/%2F?where=1"])
async def test_it_opens_on_any_path(listen: Listen, path: str) -> None:
    broker, url = await listen()
    async with connect(url + path) as socket:
        await socket.send(AMQP_HEADER)
        connection = await broker.accepted.get()
        await connection.until(lambda: connection.received == AMQP_HEADER)
        assert connection.listener == "ws"
        assert connection.peer[0] == "127.0.0.1"
        assert socket.subprotocol is None


@pytest.mark.parametrize(
    ("offered", "echoed"),
    [(["amqp"], "amqp"), (["mqtt", "amqp"], "amqp"), (["chat"], None), ([], None)],
)
async def test_it_echoes_the_sub_protocol_if_it_is_amqp(
    listen: Listen, offered: list[str], echoed: str | None
) -> None:
    _, url = await listen()
    async with connect(url, subprotocols=offered or None) as socket:
        assert socket.subprotocol == echoed


async def test_it_agrees_on_no_compression(listen: Listen) -> None:
    _, url = await listen()
    async with connect(url, compression="deflate") as socket:
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers


async def test_it_takes_frames_cut_at_each_byte_and_joined(listen: Listen) -> None:
    broker, url = await listen()
    sent = AMQP_HEADER + bytes(range(64))
    async with connect(url) as socket:
        connection = await broker.accepted.get()
        for cut in range(1, len(sent)):
            connection.received.clear()
            await socket.send(sent[:cut])
            await socket.send(sent[cut:])
            await connection.until(lambda: len(connection.received) == len(sent))
            assert connection.received == sent


async def test_it_takes_a_message_in_fragments(listen: Listen) -> None:
    broker, url = await listen()
    async with connect(url) as socket:
        connection = await broker.accepted.get()
        await socket.send([b"AM", b"QP", b"", b"\x00\x00\x09\x01"])
        await connection.until(lambda: connection.received == AMQP_HEADER)


async def test_the_opening_request_may_come_byte_by_byte(listen: Listen) -> None:
    broker, url = await listen()
    reader, writer = await _tcp(url)
    for octet in _request(url) + Frame(Opcode.BINARY, AMQP_HEADER).serialize(mask=True):
        writer.write(bytes([octet]))
        await writer.drain()
    assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
    connection = await broker.accepted.get()
    await connection.until(lambda: connection.received == AMQP_HEADER)
    writer.close()


async def test_frames_may_come_along_with_the_opening_request(listen: Listen) -> None:
    broker, url = await listen()
    reader, writer = await _tcp(url)
    frames = [Frame(Opcode.BINARY, part).serialize(mask=True) for part in (b"AMQP", b"\0\0\x09\1")]
    writer.write(_request(url) + b"".join(frames))
    connection = await broker.accepted.get()
    await connection.until(lambda: connection.received == AMQP_HEADER)
    assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
    writer.close()


async def test_it_closes_with_1003_on_text(listen: Listen) -> None:
    broker, url = await listen()
    async with connect(url) as socket:
        connection = await broker.accepted.get()
        await socket.send("AMQP")
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003
        await connection.until(lambda: connection.reasons)
        assert connection.received == b""
        assert len(connection.reasons) == 1


async def test_it_closes_with_1009_on_a_message_that_is_too_long(listen: Listen) -> None:
    broker, url = await listen(
        frame_max=4096, ws_message_max=1024 * 1024, pre_login_bytes=64 * 1024 * 1024
    )
    async with connect(url, max_size=None) as socket:
        connection = await broker.accepted.get()
        with pytest.raises(ConnectionClosed) as closed:
            await socket.send(bytes(2 * 1024 * 1024))
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        await connection.until(lambda: connection.reasons)


async def test_it_closes_with_1002_on_an_unmasked_frame(listen: Listen) -> None:
    broker, url = await listen()
    reader, writer = await _tcp(url)
    writer.write(_request(url) + Frame(Opcode.BINARY, b"AMQP").serialize(mask=False))
    answer = await asyncio.wait_for(reader.read(), 60)
    assert b"\x88" in answer and (1002).to_bytes(2, "big") in answer
    connection = await broker.accepted.get()
    await connection.until(lambda: connection.reasons)
    assert connection.received == b""
    writer.close()


async def test_who_has_not_signed_in_may_send_little(listen: Listen) -> None:
    broker, url = await listen(pre_login_bytes=10_000)
    async with connect(url) as socket:
        connection = await broker.accepted.get()
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(12):
                await socket.send(bytes(1000))
            await socket.recv()
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1008
        await connection.until(lambda: connection.reasons)
        assert len(connection.received) <= 10_000


async def test_who_has_signed_in_may_send_more(listen: Listen) -> None:
    broker, url = await listen(pre_login_bytes=10_000)
    async with connect(url) as socket:
        connection = await broker.accepted.get()
        connection.user = "guest"
        for _ in range(12):
            await socket.send(bytes(1000))
        await connection.until(lambda: len(connection.received) == 12_000)


async def test_an_opening_request_that_does_not_come_is_dropped(listen: Listen) -> None:
    _, url = await listen(handshake_timeout=0.1)
    reader, writer = await _tcp(url)
    writer.write(b"GET / HTTP/1.1\r\n")
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def test_an_endless_opening_request_is_dropped(listen: Listen) -> None:
    _, url = await listen(pre_login_bytes=8192)
    reader, writer = await _tcp(url)
    writer.write(b"GET / HTTP/1.1\r\n")
    with contextlib.suppress(ConnectionError):
        for _ in range(200):
            writer.write(b"X-Header: " + b"x" * 100 + b"\r\n")
            await writer.drain()
        assert b"101" not in await asyncio.wait_for(reader.read(), 60)
    writer.close()


@pytest.mark.parametrize("garbage", [AMQP_HEADER, b"\x16\x03\x01\x02\x00\x01", b"\x00" * 64])
async def test_bytes_that_are_no_request_end_the_connection(listen: Listen, garbage: bytes) -> None:
    broker, url = await listen(handshake_timeout=0.5)
    reader, writer = await _tcp(url)
    writer.write(garbage + b"\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        assert b"101" not in await asyncio.wait_for(reader.read(), 60)
    assert broker.accepted.empty()
    writer.close()


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Upgrade": None}, b"426"),
        ({"Connection": "keep-alive"}, b"426"),
        ({"Sec-WebSocket-Key": None}, b"400"),
        ({"Sec-WebSocket-Key": "short"}, b"400"),
        ({"Sec-WebSocket-Version": "8"}, b"400"),
        ({"Origin": "https://elsewhere.example"}, b"403"),
        ({"Origin": "null"}, b"403"),
        ({"Host": "attacker.example"}, b"421"),
    ],
)
async def test_a_wrong_opening_request_gets_its_status(
    listen: Listen, changes: dict[str, str | None], status: bytes
) -> None:
    broker, url = await listen()
    reader, writer = await _tcp(url)
    writer.write(_request(url, **changes))
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.split()[1] == status, answer
    assert broker.accepted.empty()
    writer.close()


@pytest.mark.parametrize(
    ("origin", "allowed", "opens"),
    [
        ("http://{authority}", (), True),
        ("http://localhost:1", (), False),
        ("https://{authority}", (), True),
        ("http://elsewhere.example", (), False),
        ("http://elsewhere.example", ("http://elsewhere.example",), True),
        ("http://elsewhere.example:81", ("http://elsewhere.example",), False),
        ("http://elsewhere.example", ("*",), True),
        ("file://", (), False),
    ],
)
async def test_pages_need_the_same_host_or_an_allowed_origin(
    listen: Listen, origin: str, allowed: tuple[str, ...], opens: bool
) -> None:
    _, url = await listen(allowed_origins=allowed)
    page = origin.format(authority=urlsplit(url).netloc)
    if opens:
        async with connect(url, origin=page):
            pass
    else:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url, origin=page):
                pass
        assert refused.value.response.status_code == 403


async def test_bytes_wait_while_the_broker_takes_no_more(listen: Listen) -> None:
    broker, url = await listen()
    async with connect(url) as socket:
        connection = await broker.accepted.get()
        connection.user = "guest"
        connection.pause_after = 2000
        sent = b"".join(bytes([number]) * 1000 for number in range(20))
        for start in range(0, len(sent), 1000):
            await socket.send(sent[start : start + 1000])
        await connection.until(lambda: connection.pause_after is None)
        # What had come in the same chunk was handed over with it.
        taken = len(connection.received)
        await asyncio.wait_for(asyncio.sleep(0), 1)
        assert len(connection.received) == taken
        connection.transport.resume_reading()
        await connection.until(lambda: len(connection.received) == len(sent))
        assert connection.received == sent


async def test_the_broker_sees_a_browser_that_does_not_read(listen: Listen) -> None:
    broker, url = await listen()
    reader, writer = await _tcp(url)
    writer.write(_request(url))
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()
    connection = await broker.accepted.get()
    written = 0
    while connection.transport.buffered() == 0:
        connection.transport.write(bytes(1024 * 1024))
        written += 1024 * 1024
        assert written < 64 * 1024 * 1024
    connection.transport.write(bytes(1024 * 1024))
    assert connection.writable_calls == 0
    assert connection.pause_writing_calls == 1
    writer.transport.resume_reading()
    drain = asyncio.create_task(_drain(reader))
    await connection.until(lambda: connection.writable_calls > 0)
    assert connection.transport.buffered() == 0
    drain.cancel()
    writer.close()


async def test_the_brokers_close_comes_after_what_it_wrote(listen: Listen) -> None:
    broker, url = await listen()
    async with connect(url) as socket:
        connection = await broker.accepted.get()
        connection.transport.write(Frame(Opcode.BINARY, b"last").serialize(mask=False))
        connection.transport.write_eof()
        assert await socket.recv() == b"last"
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


@pytest.mark.parametrize("politely", [True, False])
async def test_the_broker_is_told_once_that_the_browser_is_gone(
    listen: Listen, politely: bool
) -> None:
    broker, url = await listen()
    async with connect(url) as socket:
        connection = await broker.accepted.get()
        if politely:
            await socket.close()
        else:
            socket.transport.abort()
        await connection.until(lambda: connection.reasons)
    assert len(connection.reasons) == 1
    connection.transport.write(b"too late")
    connection.transport.write_eof()


async def test_a_silent_browser_is_pinged_and_then_dropped(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.server.websocket.PING_AFTER_S", 0.0)
    monkeypatch.setattr("broker.server.websocket.TICK_S", 0.05)
    broker, url = await listen()
    reader, writer = await _tcp(url)
    writer.write(_request(url))
    await reader.readuntil(b"\r\n\r\n")
    connection = await broker.accepted.get()
    assert await asyncio.wait_for(reader.readexactly(2), 60) == b"\x89\x00"
    assert connection.reasons == []
    monkeypatch.setattr("broker.server.websocket.GONE_AFTER_S", 0.1)
    await connection.until(lambda: connection.reasons)
    writer.close()


async def test_a_browser_that_was_not_read_for_long_is_not_taken_for_gone(listen: Listen) -> None:
    """As during an alarm, when a browser that was blocked rightly sends nothing."""
    broker, url = await listen()
    async with connect(url):
        transport = (await broker.accepted.get()).transport
        transport.pause_reading()
        transport._heard_at -= 2 * GONE_AFTER_S  # as if the pause had been so long
        transport.resume_reading()
        transport.look_at_clock(asyncio.get_running_loop().time())
        assert not transport.is_closing()


async def _tcp(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    return await asyncio.open_connection(parts.hostname, parts.port)


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(1024 * 1024):
        pass


def _request(url: str, **changes: str | None) -> bytes:
    headers: dict[str, str | None] = {
        "Host": urlsplit(url).netloc,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **changes,
    }
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join(["GET / HTTP/1.1", *lines, "", ""]).encode()
