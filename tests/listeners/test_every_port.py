"""What each listener of the appliance does with noise, with those who dawdle, and with crowds."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.amqp import raw
from tests.appliance import Appliance
from tests.conftest import Make, _maker
from tests.listeners.certificates import Authority
from tests.listeners.conftest import TLSClient
from tests.listeners.test_unix_socket import UnixClient

PATIENCE_S = 3
PORTS = ["amqp", "amqps", "ws", "wss", "http", "https", "metrics", "unix"]
SECURE = ["amqps", "wss", "https"]


@pytest.fixture(scope="module")
def leveret(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Appliance]:
    """An appliance with every listener there is, and little patience."""
    directory = tmp_path_factory.mktemp("ports")
    for make in _maker("serve", directory):
        yield make(
            tls_cert_file=authority.directory / "server.pem",
            amqps_port=0,
            wss_port=-1,
            https_port=0,
            unix_path=directory / "amqp.sock",
            handshake_timeout=f"{PATIENCE_S} s",
            tls_handshake_timeout=f"{PATIENCE_S} s",
            http_timeout=f"{PATIENCE_S} s",
        )


def connect(leveret: Appliance, port: str) -> socket.socket:
    """A plain socket to a listener."""
    if port == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(20)
        sock.connect(str(leveret.settings["unix_path"]))
        return sock
    host, number = leveret.addresses[port]
    return socket.create_connection((host, number), 20)


def end(sock: socket.socket) -> bytes:
    """What comes until the other side ends the connection; TimeoutError if it does not."""
    received = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while chunk := sock.recv(65536):
            received += chunk
    return received


def works(leveret: Appliance, authority: Authority) -> None:
    """Every door opens for who knocks properly."""
    context = authority.client_context()
    address = (leveret.host, leveret.amqp_port)
    raw.Client.open(address, timeout=30).close()
    TLSClient(tuple(leveret.addresses["amqps"]), context).use().close()
    UnixClient(leveret.settings["unix_path"]).use().close()
    for scheme in ("http", "https"):
        host, port = leveret.addresses[scheme]
        url = f"{scheme}://localhost:{port}/api/whoami"
        answer = httpx.get(url, auth=("guest", "guest"), verify=context, timeout=30)
        assert answer.json()["name"] == "guest", host
    url = f"http://127.0.0.1:{leveret.metrics_port}/metrics"
    assert "rabbitmq_build_info" in httpx.get(url, timeout=30).text
    assert "Traceback" not in leveret.log()


NOISE = {
    "nothing": b"",
    "a zero": b"\x00",
    "zeros": bytes(4096),
    "ones": b"\xff" * 100_000,
    "HTTP": b"GET / HTTP/1.0\r\n\r\n",
    "half of HTTP": b"POST /api/queues HTTP/1.1\r\nContent-Length: 100\r\n\r\n{",
    "HTTP with a bad length": b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "HTTP with two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "HTTP with a bad chunk": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\nx",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "AMQP": raw.PROTOCOL_HEADER,
    "AMQP 1.0": b"AMQP\x00\x01\x00\x00",
    "AMQP and noise": raw.PROTOCOL_HEADER + b"\x5a" * 3000,
    "half of AMQP": b"AMQ",
    "half of TLS": b"\x16\x03\x01\x02\x00\x01",
    "TLS that lies": b"\x16\x03\x01\xff\xff" + bytes(70_000),
    "PROXY 1": b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + raw.PROTOCOL_HEADER,
    "PROXY 2": b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12) + raw.PROTOCOL_HEADER,
    "MQTT": b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04name",
    "Redis": b"*1\r\n$4\r\nPING\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "WebSocket without a key": b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\n\r\n",
}


@pytest.mark.parametrize("port", PORTS)
def test_noise_on_any_port_ends_with_its_connection(
    leveret: Appliance, authority: Authority, port: str
) -> None:
    for noise in NOISE.values():
        with connect(leveret, port) as sock:
            with contextlib.suppress(OSError):
                sock.sendall(noise)
                sock.shutdown(socket.SHUT_WR)
            end(sock)
    if port in SECURE:
        context = authority.client_context()
        for noise in NOISE.values():
            with connect(leveret, port) as plain:
                secure = context.wrap_socket(plain, server_hostname="localhost")
                with secure, contextlib.suppress(OSError):
                    secure.sendall(noise)
                    # A half-closed TLS connection: nothing more comes from here.
                    socket.socket.shutdown(secure, socket.SHUT_WR)
                    end(secure)
    works(leveret, authority)


DAWDLERS = {
    "amqp": raw.PROTOCOL_HEADER + raw.method(0, "connection.start-ok", mechanism="PLAIN"),
    "http": b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"y" * 1000,
    "body": b"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
    b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n" + b" " * 1000,
    "lines": b"\r\n" * 1000,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "nothing": b"",
}


def test_who_dawdles_is_dropped_on_every_port(leveret: Appliance, authority: Authority) -> None:
    """An octet now and then, all ports and all kinds at once."""
    context = authority.client_context()
    waiting = selectors.DefaultSelector()
    with contextlib.ExitStack() as stack:
        for port in PORTS:
            for kind, said in DAWDLERS.items():
                # What comes at once decides what it is taken for.
                first = said.find(b"\r\n\r\n") + 4 if kind == "body" else 0
                for secure in (False, True) if port in SECURE else (False,):
                    sock: Any = stack.enter_context(connect(leveret, port))
                    if secure:
                        sock = stack.enter_context(
                            context.wrap_socket(sock, server_hostname="localhost")
                        )
                    with contextlib.suppress(ConnectionError, ssl.SSLError):
                        sock.sendall(said[:first])
                    sock.setblocking(False)
                    waiting.register(
                        sock, selectors.EVENT_READ, [f"{port} {kind} {secure}", said[first:]]
                    )
        deadline = time.monotonic() + 60
        while waiting.get_map():
            assert time.monotonic() < deadline, [key.data[0] for key in waiting.get_map().values()]
            for key, _ in waiting.select(0.2):
                sock = key.fileobj
                try:
                    ended = sock.recv(65536) == b""
                except (BlockingIOError, ssl.SSLWantReadError):
                    ended = False
                except OSError:
                    ended = True
                if ended:
                    waiting.unregister(sock)
            for key in list(waiting.get_map().values()):
                octet, key.data[1] = key.data[1][:1], key.data[1][1:]
                with contextlib.suppress(OSError):
                    key.fileobj.send(octet)  # type: ignore[union-attr]
    works(leveret, authority)


@pytest.mark.parametrize("port", ["http", "https"])
def test_a_request_s_head_is_not_collected_for_ever(
    leveret: Appliance, authority: Authority, port: str
) -> None:
    size = 40_000_000
    heads = {
        "a header": b"GET / HTTP/1.1\r\nX-Long: " + b"x" * size,
        "a name": b"GET / HTTP/1.1\r\n" + b"x" * size,
        "an address": b"GET /" + b"x" * size,
        "many headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * (size // 6),
    }
    before = peak_memory(leveret.pids["web"])
    for head in heads.values():
        with connect(leveret, port) as sock:
            peer: Any = sock
            if port == "https":
                peer = authority.client_context().wrap_socket(sock, server_hostname="localhost")
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                peer.sendall(head)
            assert end(peer)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 431")
    assert peak_memory(leveret.pids["web"]) - before < 32 * 1024 * 1024


def peak_memory(pid: int) -> int:
    """The most memory a process has had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_a_request_with_many_headers_is_refused(leveret: Appliance) -> None:
    host, port = leveret.addresses["http"]
    answer = httpx.get(
        f"http://{host}:{port}/api/whoami", headers={f"x-{n}": "y" for n in range(300)}, timeout=60
    )
    assert answer.status_code == 400


def test_requests_in_a_row_and_far_apart_are_answered(leveret: Appliance) -> None:
    """The head's patience does not count while a connection rests between requests."""
    request = b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(leveret, "http") as sock:
        for pause in (0.0, PATIENCE_S + 1.0):
            time.sleep(pause)
            sock.sendall(b"\r\n" + request + request)
            answers = b""
            while answers.count(b"HTTP/1.1 401") < 2:
                chunk = sock.recv(65536)
                assert chunk, answers
                answers += chunk


# TCP.


def timer_of(local: int, remote: int) -> tuple[str, float]:
    """Kind of the kernel's timer for a connection (02: keepalive), and seconds until it fires."""
    with Path("/proc/net/tcp").open() as table:
        for line in table:
            words = line.split()
            ends = [part.partition(":")[2] for part in words[1:3]]
            if ends == [f"{local:04X}", f"{remote:04X}"]:
                kind, _, ticks = words[5].partition(":")
                return kind, int(ticks, 16) / 100
    raise AssertionError("the kernel knows no such connection")


@pytest.mark.parametrize("port", ["amqp", "amqps", "ws", "wss"])
def test_the_kernel_asks_silent_peers(leveret: Appliance, authority: Authority, port: str) -> None:
    with connect(leveret, port) as sock:
        if port in SECURE:
            sock = authority.client_context().wrap_socket(sock, server_hostname="localhost")
        deadline = time.monotonic() + PATIENCE_S
        while timer_of(leveret.addresses[port][1], sock.getsockname()[1])[0] != "02":
            assert time.monotonic() < deadline
        _, seconds = timer_of(leveret.addresses[port][1], sock.getsockname()[1])
        assert 30 < seconds <= 61, "tcp_keepalive is 60:10:3"


def test_so_many_connections_wait_as_the_backlog_says(make_broker: Make) -> None:
    broker = make_broker(tcp_backlog=5)
    broker.signal(signal.SIGSTOP)
    try:
        with contextlib.ExitStack() as stack:
            poll = selectors.DefaultSelector()
            for _ in range(20):
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex((broker.host, broker.amqp_port))
                poll.register(sock, selectors.EVENT_WRITE)
            connected = len(poll.select(0.5))
            # The kernel keeps one more than it was told, and a little for those half through.
            assert 5 <= connected <= 7
    finally:
        broker.signal(signal.SIGCONT)
    raw.Client.open((broker.host, broker.amqp_port)).close()


def test_the_cookie_of_forms_is_secure_over_tls_and_only_there(leveret: Appliance) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, port = leveret.addresses["https"]
    secure = httpx.get(f"https://{host}:{port}/login", verify=context, timeout=30)
    assert "csrf" in secure.headers["set-cookie"] and "; Secure" in secure.headers["set-cookie"]
    plain = httpx.get(f"{leveret.http_url}/login", timeout=30)
    assert "csrf" in plain.headers["set-cookie"] and "Secure" not in plain.headers["set-cookie"]
