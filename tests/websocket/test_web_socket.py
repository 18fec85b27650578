"""WebSockets of the web process at the ASGI border: what reaches the application, and when nothing
more is read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from django.conf import settings
from uvicorn.server import ServerState

from broker.settings.config import Config
from management import websocket_protocol
from management.websocket_protocol import WAITING_BYTES, PatientWebSocket, signed_in
from tests.hostile.sockets import BINARY, CLOSE, CONTINUED, PING, TEXT, frame
from tests.hostile.test_websockets import REQUEST, Recorded


class Application:
    """Holds what it is called with; takes nothing by itself."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope, self.receive, self.send = scope, receive, send
        self.called.set()
        await self.ended.wait()


class Opened:
    """One socket whose request has come: the protocol, its transport and its application."""

    def __init__(self) -> None:
        self.application = Application()
        config = uvicorn.Config(
            self.application, ws_per_message_deflate=False, ws_max_size=1 << 20, log_config=None
        )
        self.protocol = PatientWebSocket(config, ServerState(), {})
        self.transport = Recorded()
        self.protocol.connection_made(self.transport)
        self.protocol.data_received(REQUEST)

    async def accept(self) -> None:
        await self.application.called.wait()
        assert (await self.application.receive())["type"] == "websocket.connect"
        await self.application.send({"type": "websocket.accept"})
        signed_in(self.application.scope)

    def feed(self, data: bytes) -> None:
        self.protocol.data_received(data)

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(30):
            message: dict[str, Any] = await self.application.receive()
            return message


@pytest.fixture(autouse=True)
def appliance(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(settings, "APPLIANCE", Config())
    monkeypatch.setattr(PatientWebSocket, "turns", None)
    yield


async def test_frames_that_come_before_the_answer_wait_for_it() -> None:
    opened = Opened()
    opened.feed(frame(PING, b"x") + frame(BINARY, b"early"))
    assert opened.transport.written == [] and opened.transport.paused
    await opened.accept()
    assert opened.transport.written[0].startswith(b"HTTP/1.1 101")
    assert (await opened.next())["bytes"] == b"early"
    assert opened.transport.written[1] == b"\x8a\x01x"
    assert not opened.transport.paused


async def test_bytes_that_wait_are_one_message_however_they_were_cut() -> None:
    opened = Opened()
    await opened.accept()
    opened.feed(frame(BINARY, b"a") + frame(BINARY, b"b", fin=False) + frame(CONTINUED, b"c"))
    opened.feed(frame(BINARY, b"d", fin=False))
    assert (await opened.next())["bytes"] == b"abcd"
    opened.feed(frame(CONTINUED, b"e"))
    assert (await opened.next())["bytes"] == b"e"


async def test_text_comes_whole_and_behind_the_bytes_before_it() -> None:
    opened = Opened()
    await opened.accept()
    opened.feed(frame(BINARY, b"a") + frame(TEXT, b"on", fin=False) + frame(PING, b""))
    opened.feed(frame(CONTINUED, b"e") + frame(BINARY, b"b"))
    found = [await opened.next() for _ in range(3)]
    assert [each.get("bytes") or each.get("text") for each in found] == [b"a", "one", b"b"]


async def test_it_stops_reading_while_the_application_takes_nothing() -> None:
    opened = Opened()
    await opened.accept()
    sent = b""
    while not opened.transport.paused:
        piece = bytes([len(sent) // 10_000 % 256]) * 10_000
        sent += piece
        opened.feed(frame(BINARY, piece))
        await asyncio.sleep(0)
        assert len(sent) < 4 * WAITING_BYTES
    received = b""
    while len(received) < len(sent):
        received += (await opened.next())["bytes"]
    assert received == sent
    assert not opened.transport.paused


async def test_a_silent_peer_is_kept_while_its_answer_may_lie_unread() -> None:
    """A publisher that an alarm blocks is not read, and so is its pong."""
    opened = Opened()
    await opened.accept()
    while not opened.transport.paused:
        opened.feed(frame(BINARY, bytes(10_000)))
        await asyncio.sleep(0)
    opened.protocol.keepalive_timeout()
    assert not opened.transport.closing
    while len(opened.protocol._intake):
        await opened.next()
    opened.protocol.keepalive_timeout()
    assert opened.transport.closing


async def test_a_peer_that_does_not_answer_the_close_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket_protocol, "CLOSE_PATIENCE_S", 0.01)
    opened = Opened()
    await opened.accept()
    await opened.application.send({"type": "websocket.close", "code": 1000})
    opened.feed(frame(BINARY, b"ignored"))
    await wait_for_abort(opened)


async def test_a_peer_that_closes_and_takes_nothing_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket_protocol, "CLOSE_PATIENCE_S", 0.01)
    opened = Opened()
    await opened.accept()
    opened.feed(frame(CLOSE, b""))
    assert opened.transport.closing
    await wait_for_abort(opened)


async def wait_for_abort(opened: Opened) -> None:
    async with asyncio.timeout(30):
        while not opened.transport.aborted:  # noqa: ASYNC110 (a timer of uvicorn's loop)
            await asyncio.sleep(0.005)


async def test_what_comes_after_the_close_is_bounded() -> None:
    settings.APPLIANCE = Config(close_discard_max=1000)
    opened = Opened()
    await opened.accept()
    await opened.application.send({"type": "websocket.close", "code": 1000})
    opened.feed(frame(BINARY, bytes(900)))
    assert not opened.transport.aborted
    opened.feed(frame(BINARY, bytes(900)))
    assert opened.transport.aborted


async def test_who_does_not_take_its_pongs_gets_the_newest() -> None:
    opened = Opened()
    await opened.accept()
    opened.transport.written.clear()
    opened.protocol.pause_writing()
    for number in range(20):
        opened.feed(frame(PING, bytes([number])))
    assert opened.transport.written == []
    opened.protocol.resume_writing()
    assert opened.transport.written == [b"\x8a\x01\x13"]


async def test_a_message_longer_than_the_application_said_is_refused() -> None:
    opened = Opened()
    await opened.accept()
    signed_in(opened.application.scope, 1000)
    opened.feed(frame(TEXT, b"", length=1001))
    assert (await opened.next())["code"] == 1009
    assert opened.transport.closing
