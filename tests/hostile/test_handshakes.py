"""TLS handshakes that never end, and sockets that are half closed."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp import raw
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.hostile.figures import forget_peak, peak_bytes, resident_bytes
from tests.hostile.sockets import BINARY, frame, opened
from tests.hostile.tls import hello_of
from tests.listeners.certificates import Authority
from tests.listeners.conftest import TLSClient

PROCESS = {"amqps": "broker", "wss": "broker", "https": "web"}


@pytest.fixture(scope="module")
def secure(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """An appliance that speaks TLS on all its ports and waits a second for handshakes."""
    for make in _maker("serve", tmp_path_factory.mktemp("secure")):
        yield make(
            tls_cert_file=authority.directory / "server.pem",
            amqps_port=0,
            https_port=0,
            wss_port=-1,
            tls_handshake_timeout="1 s",
            handshake_timeout="2 s",
            http_timeout="2 s",
        )


def end_of(sock: socket.socket) -> None:
    """Waits for the other side to end the connection."""
    sock.settimeout(30)
    with contextlib.suppress(ConnectionError):
        while sock.recv(1 << 16):
            pass
    sock.close()


@pytest.mark.parametrize("port", PROCESS)
@pytest.mark.parametrize("said", ["nothing", "half", "whole"])
def test_a_handshake_that_does_not_end_costs_little_and_is_dropped(
    secure: Appliance, authority: Authority, port: str, said: str
) -> None:
    hello = hello_of(authority.file)
    begun = {"nothing": b"", "half": hello[:100], "whole": hello}[said]
    pid = secure.pids[PROCESS[port]]
    forget_peak(pid)
    before, files = resident_bytes(pid), descriptors(pid)
    socks = [socket.create_connection(tuple(secure.addresses[port])) for _ in range(100)]
    for sock in socks:
        sock.sendall(begun)
    deadline = time.monotonic() + 2
    while descriptors(pid) < files + 90 and time.monotonic() < deadline:
        time.sleep(0.005)  # until they are accepted
    # asyncio's own TLS holds 256 KiB for each: 25 MB.
    assert peak_bytes(pid) - before < 16 << 20
    # Others get in beside them.
    with TLSClient(tuple(secure.addresses["amqps"]), authority.client_context()).use() as client:
        client.close()
    for sock in socks:
        end_of(sock)


@pytest.mark.parametrize("port", PROCESS)
def test_a_hello_in_single_bytes_wins_no_time(
    secure: Appliance, authority: Authority, port: str
) -> None:
    with socket.create_connection(tuple(secure.addresses[port])) as sock:
        sock.settimeout(0.05)
        ended = False
        for octet in hello_of(authority.file)[:-1]:
            try:
                sock.sendall(bytes([octet]))
                ended = sock.recv(1 << 16) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            if ended:
                break
        assert ended


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def settles_below(pid: int, most: int) -> bool:
    """Whether a process comes below so many descriptors: the end of a connection is sent before
    its descriptor is closed."""
    deadline = time.monotonic() + 30
    while descriptors(pid) >= most and time.monotonic() < deadline:
        time.sleep(0.02)
    return descriptors(pid) < most


def half_closed(leveret: Appliance, where: str, said: bytes) -> socket.socket:
    sock = socket.create_connection(tuple(leveret.addresses[where]))
    sock.sendall(said)
    sock.shutdown(socket.SHUT_WR)
    return sock


@pytest.mark.parametrize(
    ("port", "said"),
    [
        ("amqp", b""),
        ("amqp", raw.PROTOCOL_HEADER),
        ("amqp", raw.PROTOCOL_HEADER + raw.start_ok()),
        ("amqps", b"\x16\x03\x01"),
        ("ws", b"GET / HTTP/1.1\r\nHost: localhost\r\n"),
        ("https", b"\x16\x03\x01"),
        ("http", b""),
        ("http", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"),
        ("http", b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"),
    ],
)
def test_a_half_closed_socket_is_closed_and_its_descriptor_free(
    secure: Appliance, port: str, said: bytes
) -> None:
    pid = secure.pids["web" if port.startswith("http") else "broker"]
    before = descriptors(pid)
    for sock in [half_closed(secure, port, said) for _ in range(20)]:
        end_of(sock)
    assert settles_below(pid, before + 10)


@pytest.mark.parametrize("door", ["ws", "http"])
def test_a_half_closed_websocket_is_closed_on_both_sides_of_the_relay(
    secure: Appliance, door: str
) -> None:
    counted = [secure.pids["web"], secure.pids["broker"]]
    before = [descriptors(pid) for pid in counted]
    for _ in range(20):
        sock, _ = opened(secure, door)
        sock.sendall(frame(BINARY, raw.PROTOCOL_HEADER))
        sock.shutdown(socket.SHUT_WR)
        end_of(sock)
    for pid, count in zip(counted, before, strict=True):
        assert settles_below(pid, count + 10)
