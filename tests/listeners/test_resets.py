"""A client may reset its connection at any moment, also between two steps of the broker's: nothing
is reported as an error of the broker."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.server import ServerProtocol

from broker.server.app import Broker
from broker.server.tls import TLSProtocol
from broker.server.websocket import WebSocketProtocol
from tests.amqp import raw
from tests.listeners.certificates import Authority
from tests.listeners.conftest import TLSClient
from tests.listeners.test_loop import run

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CLOSE = b"\x88\x82\x00\x00\x00\x00\x03\xe8"
UNMASKED = b"\x82\x01x"


def address(broker: Broker, name: str) -> tuple[str, int]:
    host, port = broker.service.listeners.addresses[name]
    return str(host), int(port)


@pytest.mark.parametrize(
    ("sent", "ends"),
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
    ends: bool,
) -> None:
    answers, lost = ServerProtocol.data_to_send, WebSocketProtocol.connection_lost
    ended = False

    async def test(broker: Broker) -> None:
        gone = asyncio.Event()

        def connection_lost(protocol: WebSocketProtocol, exc: Exception | None) -> None:
            lost(protocol, exc)
            gone.set()

        def reset_before_the_end(protocol: ServerProtocol) -> Iterator[bytes]:
            nonlocal ended
            for data in answers(protocol):
                if not data:
                    ended = True
                    client.reset()
                yield data

        monkeypatch.setattr(WebSocketProtocol, "connection_lost", connection_lost)
        monkeypatch.setattr(ServerProtocol, "data_to_send", reset_before_the_end)
        client = raw.Client(address(broker, "ws"))
        client.send(sent)
        if ends:
            client.end_sending()
        await gone.wait()

    with caplog.at_level(logging.ERROR):
        run(tmp_path / "data", test)
    assert ended
    assert not caplog.records


def test_a_tls_client_that_resets_when_the_last_byte_is_sent_is_no_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    authority: Authority,
) -> None:
    enter, resume = TLSProtocol._enter, TLSProtocol.resume_writing
    lost = TLSProtocol.connection_lost
    resets = 0

    def connect(at: tuple[str, int]) -> TLSClient:
        client = TLSClient(at, authority.client_context()).use()
        client.socket = socket.socket(fileno=client.socket.detach())  # what comes is not deciphered
        return client

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
                broker.loop.remove_reader(fd)
                client.reset()
            resume(protocol)

        def connection_lost(protocol: TLSProtocol, exc: Exception | None) -> None:
            lost(protocol, exc)
            gone.set()

        monkeypatch.setattr(TLSProtocol, "_enter", entering)
        monkeypatch.setattr(TLSProtocol, "resume_writing", reset_first)
        monkeypatch.setattr(TLSProtocol, "connection_lost", connection_lost)
        client = await asyncio.to_thread(connect, address(broker, "amqps"))
        fd = client.socket.fileno()
        entered[0].write(bytes(30_000_000))  # more than the buffers of a socket hold
        entered[0].write_eof()
        broker.loop.add_reader(fd, os.read, fd, 1 << 20)
        await gone.wait()

    secure = {"amqps_port": 0, "tls_cert_file": authority.directory / "server.pem"}
    with caplog.at_level(logging.ERROR):
        run(tmp_path / "data", test, **secure)
    assert resets == 1
    assert not caplog.records
