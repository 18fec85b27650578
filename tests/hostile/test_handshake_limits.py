"""TLS handshakes under way: bounded for all together and for each address; new ones find room."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import partial

import pytest

from broker.serving.tls_handshakes import Handshake, Handshakes
from broker.settings.config import Config
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.hostile.tls import hello_of
from tests.listeners.certificates import Authority

PORTS = ("amqps", "wss", "https")
MOST, OF_ONE = 16, 8


@pytest.fixture(scope="module")
def secure(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    for make in _maker("serve", tmp_path_factory.mktemp("secure")):
        yield make(
            tls_cert_file=authority.directory / "server.pem",
            amqps_port=0,
            https_port=0,
            wss_port=-1,
            tls_handshake_timeout="60 s",
            handshake_timeout="60 s",
            tls_handshakes_max=MOST,
            tls_handshakes_address_max=OF_ONE,
        )


def begun(secure: Appliance, port: str, source: str, hello: bytes) -> socket.socket:
    """A handshake of which the client's first word is sent and answered."""
    sock = socket.create_connection(tuple(secure.addresses[port]), 60, (source, 0))
    sock.sendall(hello)
    assert sock.recv(1)
    return sock


def ended(socks: list[socket.socket]) -> list[bool]:
    """Which of them are at their end, once what came is read."""
    found = []
    for sock in socks:
        sock.setblocking(False)
        is_over = False
        with contextlib.suppress(BlockingIOError):
            try:
                while sock.recv(1 << 16):
                    pass
                is_over = True
            except ConnectionError:
                is_over = True
        found.append(is_over)
    return found


@pytest.mark.parametrize("port", PORTS)
def test_handshakes_that_wait_make_room_for_new_ones(
    secure: Appliance, authority: Authority, port: str
) -> None:
    hello = hello_of(authority.file)
    one = [begun(secure, port, "127.0.0.2", hello) for _ in range(OF_ONE + 4)]
    wait_for_end(one[3])
    assert ended(one) == [True] * 4 + [False] * OF_ONE, "the oldest of this address"
    other = [begun(secure, port, "127.0.0.3", hello) for _ in range(MOST - OF_ONE - 1)]
    # Another client is through while all of these wait.
    raw = socket.create_connection(tuple(secure.addresses[port]), 60)
    with authority.client_context().wrap_socket(raw, server_hostname="localhost") as client:
        assert client.version() in ("TLSv1.2", "TLSv1.3")
    assert not any(ended(other)), "its own end is no reason to end others"
    third = [begun(secure, port, f"127.0.0.{number}", hello) for number in (4, 5)]
    wait_for_end(one[4])
    assert not any(ended(other + third)), "the address with most gives way"
    for sock in one + other + third:
        sock.close()


def wait_for_end(sock: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        sock.settimeout(20)
        while sock.recv(1 << 16):
            pass


@pytest.mark.parametrize("port", PORTS)
def test_a_handshake_that_is_over_is_not_counted(
    secure: Appliance, authority: Authority, port: str
) -> None:
    clients = []
    for _ in range(3 * MOST):
        raw = socket.create_connection(tuple(secure.addresses[port]), 60)
        clients.append(authority.client_context().wrap_socket(raw, server_hostname="localhost"))
    assert not any(at_end(one) for one in clients)
    for client in clients:
        client.close()


def at_end(client: ssl.SSLSocket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except ssl.SSLWantReadError:
        return False


def test_networks_of_ipv6_count_as_one_address() -> None:
    aborted: list[int] = []
    handshakes = Handshakes(lambda: Config(tls_handshakes_max=16, tls_handshakes_address_max=8))
    begun: list[Handshake] = []
    for number in range(10):
        peer = f"2001:db8::{number + 1:x}"
        begun.append(handshakes.begin(peer, partial(aborted.append, number)))
    assert (aborted, handshakes.count, handshakes.aborted) == ([0, 1], 8, 2)
    for one in begun:
        handshakes.end(one)
        handshakes.end(one)
    assert handshakes.count == 0
