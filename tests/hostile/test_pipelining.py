"""Many requests on one connection before the first is answered."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from typing import Any

import pytest
import uvicorn
from django.test import override_settings
from uvicorn.server import ServerState

from broker.settings.bounds import REQUESTS_WAITING_MAX
from broker.settings.config import Config
from management.bodies import WIRE, Wire
from management.http_protocol import PIECE, BoundedHTTP
from tests.appliance import Appliance
from tests.hostile.figures import peak_bytes, wait_idle

REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connection(leveret: Appliance) -> socket.socket:
    return socket.create_connection((leveret.host, leveret.http_port), timeout=60)


def statuses(sock: socket.socket, count: int) -> list[bytes]:
    """Reads until so many answers began; their statuses."""
    received = b""
    while len(found := re.findall(rb"HTTP/1\.1 (\d{3}) ", received)) < count:
        data = sock.recv(1 << 16)
        assert data, f"{len(found)} answers came, then the end"
        received += data
    return found


def test_each_of_many_requests_at_once_is_answered(shared_leveret: Appliance) -> None:
    with connection(shared_leveret) as sock:
        sock.sendall(REQUEST * 300)
        assert statuses(sock, 300) == [b"200"] * 300


def test_a_body_behind_other_requests_arrives_whole(shared_leveret: Appliance) -> None:
    body = b'{"a": "' + b"x" * 50_000 + b'"}'
    put = (
        b"PUT /api/queues/%2F/pipelined HTTP/1.1\r\nHost: localhost\r\n"
        b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: "
        + str(len(body)).encode()
        + b"\r\n\r\n"
        + body
    )
    with connection(shared_leveret) as sock:
        sock.sendall(REQUEST * 20 + put + REQUEST)
        found = statuses(sock, 22)
    assert found == [*[b"200"] * 20, b"201", b"200"]


@pytest.mark.parametrize(
    ("line", "more"),
    [
        (b"POST", b"X: y\r\n" * 200),
        (b"POST", b"Upgrade: websocket\r\nConnection: Upgrade\r\n"),
        (b"GET", b"Upgrade: h2c\r\nConnection: Upgrade\r\n"),
        (b"CONNECT", b""),
    ],
)
def test_what_comes_behind_a_head_that_is_refused_is_dropped(
    leveret: Appliance, line: bytes, more: bytes
) -> None:
    head = line + b" /ws HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n" + more
    with connection(leveret) as sock:
        sock.sendall(head + b"\r\n" + b"x" * 9000)
        (status,) = statuses(sock, 1)
        assert status[:1] == b"4"
    with connection(leveret) as sock:
        sock.sendall(REQUEST)
        assert statuses(sock, 1) == [b"200"]
    assert "Exception" not in leveret.log_file.read_text()


def test_requests_of_who_reads_no_answer_stay_in_the_socket(leveret: Appliance) -> None:
    web = leveret.pids["web"]
    with connection(leveret) as sock:
        sock.sendall(REQUEST)
        statuses(sock, 1)
    before = peak_bytes(web)
    short = b"GET / HTTP/1.1\r\n\r\n"
    flood = short * ((1 << 20) // 20 // len(short))
    socks = [connection(leveret) for _ in range(20)]

    def send(sock: socket.socket) -> None:
        sock.settimeout(5)
        try:
            sock.sendall(flood)
        except OSError:
            pass  # it is not taken: that is what is asked for

    threads = [threading.Thread(target=send, args=(sock,)) for sock in socks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_idle(web)
    # 140 MB and more without the bound.
    assert peak_bytes(web) - before < 30 << 20
    for sock in socks:
        sock.close()


async def test_a_body_is_parsed_in_few_steps_once_it_is_wanted() -> None:
    """What is left of it at a time, not in pieces of `PIECE` bytes."""
    seen: list[int] = []
    whole = asyncio.Event()
    begun: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()

    class Noting(BoundedHTTP):
        def on_body(self, body: bytes) -> None:
            seen.append(len(body))
            super().on_body(body)
            if sum(seen) >= 60_000:
                whole.set()

    async def application(scope: dict[str, Any], _receive: object, _send: object) -> None:
        begun.set_result(scope[WIRE])
        await asyncio.Event().wait()

    config = uvicorn.Config(application, lifespan="off", log_config=None)
    config.load()
    head = b"PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"
    near, far = socket.socketpair()
    with override_settings(APPLIANCE=Config()), near:
        transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Noting(config=config, server_state=ServerState(), app_state={}), far
        )
        protocol.data_received(head + bytes(60_000) + b"GET / HTTP/1.1\r\n")
        wire = await begun
        for _ in range(20):
            await asyncio.sleep(0)
        assert sum(seen) < PIECE, "what came with the head"
        assert not transport.is_reading()
        wire.want()
        await asyncio.wait_for(whole.wait(), 30)
        transport.abort()
        await asyncio.sleep(0)
    assert sum(seen) == 60_000
    assert len(seen) <= 3


async def test_a_lost_connection_keeps_nothing_for_a_request_that_still_waits() -> None:
    async def application(_scope: object, _receive: object, _send: object) -> None:
        await asyncio.Event().wait()

    config = uvicorn.Config(application, lifespan="off", log_config=None)
    config.load()
    near, far = socket.socketpair()
    with override_settings(APPLIANCE=Config()), near:
        transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: BoundedHTTP(config=config, server_state=ServerState(), app_state={}), far
        )
        protocol.data_received(REQUEST * 500)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert len(protocol.pipeline) >= REQUESTS_WAITING_MAX
        assert protocol._unparsed
        transport.abort()
        await asyncio.sleep(0)
    assert protocol not in protocol.connections
    assert not protocol._unparsed
    assert not protocol.pipeline
