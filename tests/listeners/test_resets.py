"""A client may reset its connection at any moment, also between two steps of the broker's: nothing
is reported as an error of the broker."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.server import ServerProtocol

from broker.server.app import Broker
from broker.server.tls import TLSProtocol
from broker.server.websocket import WebSocketProtocol
from tests.listeners.certificates import Authority
from tests.listeners.conftest import TLSClient
from tests.listeners.test_loop import run

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CLOSE = b"\x88\x82\x00\x00\x00\x00\x03\xe8"
UNMASKED = b"\x82\x01x"
LINGER_NOT = struct.pack("ii", 1, 0)


def reset(client: socket.socket) -> None:
    """Closes without a farewell; the broker's kernel has it when this returns."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    client.close()


def address(broker: Broker, name: str) -> tuple[str, int]:
    host, port = broker.service.listeners.addresses[name]
    return str(host), int(port)


@pytest.mark.parametrize(
    ("sent", "ended"),
    [
        (b"nonsense\r\n\r\n", False),
        (UPGRADE.replace(b"localhost", b"elsewhere.example"), False),
        (UPGRADE + CLOSE, False),
        (UPGRADE + UNMASKED, False),
        (UPGRADE, True),
    ],
    ids=["no request", "a refused host", "a close", "a faulty frame", "the end"],
)
def test_a_websocket_client_that_resets_while_its_end_is_answered_is_no_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    ended: bool,
) -> None:
    answers, lost = ServerProtocol.data_to_send, WebSocketProtocol.connection_lost
    client = socket.socket()

    async def test(broker: Broker) -> None:
        gone = asyncio.Event()

        def connection_lost(protocol: WebSocketProtocol, exc: Exception | None) -> None:
            lost(protocol, exc)
            gone.set()

        def reset_before_the_end(protocol: ServerProtocol) -> Iterator[bytes]:
            for data in answers(protocol):
                if not data:
                    reset(client)
                yield data

        monkeypatch.setattr(WebSocketProtocol, "connection_lost", connection_lost)
        monkeypatch.setattr(ServerProtocol, "data_to_send", reset_before_the_end)
        client.connect(address(broker, "ws"))
        client.sendall(sent)
        if ended:
            client.shutdown(socket.SHUT_WR)
        await gone.wait()

    with client, caplog.at_level(logging.ERROR):
        run(tmp_path / "data", test)
        assert client.fileno() < 0
    assert not caplog.records


def test_a_tls_client_that_resets_when_the_last_byte_is_sent_is_no_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    authority: Authority,
) -> None:
    enter, resume = TLSProtocol._enter, TLSProtocol.resume_writing
    resets = 0

    def connect(at: tuple[str, int]) -> socket.socket:
        client = TLSClient(at, authority.client_context()).use()
        return socket.socket(fileno=client.socket.detach())

    async def test(broker: Broker) -> None:
        gone = asyncio.Event()
        entered: list[TLSProtocol] = []

        def entering(protocol: TLSProtocol) -> None:
            entered.append(protocol)
            enter(protocol)

        def reset_first(protocol: TLSProtocol) -> None:
            nonlocal resets
            if protocol is entered[0] and protocol.is_closing():
                resets += 1
                broker.loop.remove_reader(client.fileno())
                reset(client)
                broker.loop.call_later(0, gone.set)
            resume(protocol)

        monkeypatch.setattr(TLSProtocol, "_enter", entering)
        monkeypatch.setattr(TLSProtocol, "resume_writing", reset_first)
        client = await asyncio.to_thread(connect, address(broker, "amqps"))
        entered[0].write(bytes(30_000_000))  # more than the buffers of a socket hold
        entered[0].write_eof()
        broker.loop.add_reader(client.fileno(), os.read, client.fileno(), 1 << 20)
        await gone.wait()

    secure = {"amqps_port": 0, "tls_cert_file": authority.directory / "server.pem"}
    with caplog.at_level(logging.ERROR):
        run(tmp_path / "data", test, **secure)
    assert resets == 1
    assert not caplog.records
