"""What strangers may take: sockets, time, bytes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker.server.entrance import set_options
from tests.amqp import raw
from tests.amqp.test_permissions import ask
from tests.appliance import Appliance
from tests.conftest import Make
from tests.listeners.conftest import hang_up
from tests.listeners.test_tls import until

OPEN_FILES = 256


def address(broker: Appliance) -> tuple[str, int]:
    return broker.host, broker.amqp_port


@contextlib.contextmanager
def crowd(where: tuple[str, int], size: int) -> Iterator[list[socket.socket]]:
    """So many sockets that say nothing."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(size):
            one = stack.enter_context(socket.socket())
            one.settimeout(60)
            with contextlib.suppress(OSError):
                one.connect(where)
            sockets.append(one)
        yield sockets


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_crowd_is_hung_up_on_before_the_disk_feels_it(make_broker: Make) -> None:
    broker = make_broker(start=False, handshake_timeout="1 min")
    broker.open_files = OPEN_FILES
    broker.start()
    with raw.Client.open(address(broker)) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "confirm.select")
        with crowd(address(broker), 4 * OPEN_FILES):
            until("connections refused", broker)
            for name in range(40):
                client.call(1, "queue.declare", queue=f"q{name}", durable=True)
            for number in range(1, 41):
                client.publish(1, "", f"q{number - 1}", b"x", delivery_mode=2)
                assert client.expect("basic.ack", 1).delivery_tag == number
            assert "out of system resource" not in broker.log()
            assert broker.process is not None
            before = cpu_seconds(broker.process.pid)
            time.sleep(1)
            spent = cpu_seconds(broker.process.pid) - before
            assert spent < 0.5, "it turns without a reason"
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(raw.ConnectionEndedError, ConnectionError):
                raw.Client.open(address(broker)).close()
                break
            assert time.monotonic() < deadline, "no room again after the crowd has gone"
        client.close()


def test_crowds_on_the_web_and_metrics_ports_pass(make_leveret: Make) -> None:
    """The process that lacks descriptors goes on, says so, and is well when the crowd has gone."""
    leveret = make_leveret(start=False, http_timeout="1 min", metrics_port=-1)
    leveret.open_files = OPEN_FILES
    leveret.start()
    web, metrics = (leveret.host, leveret.http_port), (leveret.host, leveret.metrics_port)
    pids = dict(leveret.pids)
    with crowd(metrics, OPEN_FILES), raw.Client.open(address(leveret)) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        with crowd(web, 2 * OPEN_FILES):
            until("connections refused: the limit of open files", leveret)
            client.call(1, "confirm.select")
            client.publish(1, "", "q", b"x", delivery_mode=2)
            client.expect("basic.ack", 1)
        client.close()
    deadline = time.monotonic() + 30
    for host, port, path in ((*web, "/api/health/checks/alarms"), (*metrics, "/metrics")):
        while True:
            try:
                answer = httpx.get(
                    f"http://{host}:{port}{path}", auth=("guest", "guest"), timeout=60
                )
            except httpx.TransportError:
                assert time.monotonic() < deadline
                continue
            assert answer.status_code == 200
            break
    for pid in pids.values():
        os.kill(pid, 0)
    assert "out of system resource" not in leveret.log()


def test_a_configured_number_of_connections_is_kept(make_broker: Make) -> None:
    broker = make_broker(connections_max=2)
    with raw.Client.open(address(broker)) as first, raw.Client.open(address(broker)):
        assert hang_up(address(broker), raw.PROTOCOL_HEADER) == b""
        until("connections refused: 2 are open, and there is room for 2", broker)
        first.close()
        deadline = time.monotonic() + 60
        while True:
            try:
                raw.Client.open(address(broker)).close()
                break
            except (raw.ConnectionEndedError, ConnectionError):
                assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "said",
    [b"", b"A", raw.PROTOCOL_HEADER, raw.PROTOCOL_HEADER + b"\x01\x00\x00\x00\x00\x01\x00"],
    ids=["nothing", "a byte", "a header", "half a frame"],
)
def test_who_does_not_get_on_is_dropped(make_broker: Make, said: bytes) -> None:
    broker = make_broker(handshake_timeout="300 ms")
    hang_up(address(broker), said)
    until("no connection.open within the handshake's time", broker)


def test_a_byte_now_and_then_does_not_help(make_broker: Make) -> None:
    broker = make_broker(handshake_timeout="300 ms")
    with socket.create_connection(address(broker), 60) as peer:
        peer.sendall(raw.PROTOCOL_HEADER)
        peer.recv(65536)
        peer.settimeout(0.05)
        ended = False
        deadline = time.monotonic() + 60
        while not ended:
            assert time.monotonic() < deadline
            try:
                peer.sendall(b"\x01")
                ended = peer.recv(65536) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True


def test_a_thousand_silent_sockets_are_dropped_and_leave_nothing(make_broker: Make) -> None:
    broker = make_broker(handshake_timeout="1 s")
    assert broker.process is not None
    descriptors = Path(f"/proc/{broker.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    with crowd(address(broker), 1000) as sockets:
        with raw.Client.open(address(broker)) as client:
            client.fence(1)
        for one in sockets:
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b""
    deadline = time.monotonic() + 60
    while len(list(descriptors.iterdir())) > before + 5:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_ok(client: raw.Client, **more: object) -> None:
    client.send(raw.PROTOCOL_HEADER)
    client.expect("connection.start", 0)
    fields: dict[str, object] = {
        "client_properties": {"capabilities": raw.CAPABILITIES},
        "mechanism": "PLAIN",
        "response": raw.plain_response("guest", "guest"),
        "locale": "en_US",
    }
    client.send(raw.method(0, "connection.start-ok", **{**fields, **more}))


def test_a_start_ok_larger_than_the_first_frames_ends_the_connection(
    shared_broker: Appliance,
) -> None:
    with raw.Client(address(shared_broker)) as client:
        start_ok(client, client_properties={"x": "y" * 9000})
        client.expect_end()


def test_a_start_ok_as_large_as_the_first_frames_is_taken(shared_broker: Appliance) -> None:
    with raw.Client(address(shared_broker)) as client:
        start_ok(client, client_properties={"x": "y" * 8000})
        client.expect("connection.tune", 0)


def nested(depth: int) -> dict[str, object]:
    table: dict[str, object] = {}
    for _ in range(depth):
        table = {"t": table}
    return table


def test_tables_as_deep_as_the_frame_allows_end_the_connection(shared_broker: Appliance) -> None:
    with raw.Client(address(shared_broker)) as client:
        start_ok(client, client_properties=nested(40))
        client.expect_end()
    with raw.Client(address(shared_broker)) as client:
        start_ok(client, client_properties=nested(20))
        client.expect("connection.tune", 0)


def test_a_length_that_lies_ends_the_connection(shared_broker: Appliance) -> None:
    with raw.Client(address(shared_broker)) as client:
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(struct.pack(">BHI", 1, 0, 1 << 30) + bytes(10))
        client.expect_end()


def test_who_is_being_looked_at_cannot_have_more_kept_than_the_budget(
    make_broker: Make,
) -> None:
    broker = make_broker(pre_login_bytes="8 KiB")
    with raw.Client(address(broker)) as client:
        start_ok(client, response=raw.plain_response("guest", "wrong"))
        with contextlib.suppress(OSError):
            client.send(bytes(100_000))
        with contextlib.suppress(OSError, raw.ConnectionEndedError, AssertionError):
            client.read_to_end()
    with raw.Client.open(address(broker)) as client:
        client.fence(1)


# Addresses.


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as sock:
        try:
            sock.bind(("::1", 0))
        except OSError:
            return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_it_listens_on_several_addresses(make_leveret: Make) -> None:
    leveret = make_leveret(bind="127.0.0.1,::1")
    for host in ("127.0.0.1", "::1"):
        for port in (leveret.amqp_port, leveret.ws_port, leveret.http_port, leveret.metrics_port):
            socket.create_connection((host, port), 10).close()
        with raw.Client.open((host, leveret.amqp_port)) as client:
            client.fence(1)
    listeners = ask(leveret, "overview")["listeners"]
    amqp = {each["ip_address"]: each["port"] for each in listeners if each["protocol"] == "amqp"}
    assert amqp == {"127.0.0.1": leveret.amqp_port, "::1": leveret.amqp_port}


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_all_of_ipv6_is_not_ipv4(make_broker: Make) -> None:
    broker = make_broker(bind="::")
    with raw.Client.open(("::1", broker.amqp_port)) as client:
        client.fence(1)
    with pytest.raises(ConnectionRefusedError):
        raw.Client(("127.0.0.1", broker.amqp_port))


def test_it_listens_on_a_unix_socket(make_broker: Make) -> None:
    broker = make_broker(start=False)
    path = broker.data_dir.parent / "amqp.sock"
    broker.settings["unix_path"] = path
    broker.start()
    assert path.stat().st_mode & 0o777 == 0o660
    with raw.Client(address(broker)) as client:
        client.socket.close()
        client.socket = socket.socket(socket.AF_UNIX)
        client.socket.settimeout(60)
        client.socket.connect(str(path))
        client.start()
        client.send_method(0, "connection.open", virtual_host="/")
        client.expect("connection.open-ok", 0)
        (row,) = ask(broker, "list", noun="connections")["items"]
        assert row["peer_host"] == "unix"
        client.close()


def test_so_many_connections_wait_to_be_accepted(make_broker: Make) -> None:
    broker = make_broker(tcp_backlog=2)
    broker.signal(signal.SIGSTOP)
    callers = [socket.socket() for _ in range(8)]
    for caller in callers:
        caller.setblocking(False)
        caller.connect_ex(address(broker))
    # The kernel counts to one more than the number.
    waiting = [caller for caller in callers if is_through(caller)]
    assert len(waiting) == 3
    broker.signal(signal.SIGCONT)
    for caller in callers:
        caller.settimeout(30)
        caller.sendall(b"AMQP\0\0\x09\x01")
        assert caller.recv(1) == b"\x01"
        caller.close()


def is_through(caller: socket.socket) -> bool:
    """Whether a connection that was begun has come about."""
    through = select.poll()
    through.register(caller, select.POLLOUT)
    return bool(through.poll(100))


@pytest.mark.parametrize("keepalive", [(61, 11, 4), ()])
def test_it_asks_silent_peers_whether_they_live(keepalive: tuple[int, ...]) -> None:
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    with socket.socket() as sock:
        untouched = tuple(sock.getsockopt(socket.IPPROTO_TCP, option) for option in options)
        set_options(sock, keepalive, 7)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        kept = tuple(sock.getsockopt(socket.IPPROTO_TCP, option) for option in options)
        assert kept == (keepalive or untouched)
