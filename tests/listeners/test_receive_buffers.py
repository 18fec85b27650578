"""The kernel's receive buffer of a connection from the same machine is bounded, and what it is
sent is not paced."""

from __future__ import annotations

import platform
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.amqp.raw import Client, method, publish
from tests.conftest import Make
from tests.listeners.certificates import Authority
from tests.listeners.conftest import TLSClient

pytestmark = pytest.mark.skipif(
    shutil.which("ss") is None, reason="ss is not installed, which shows buffers of the kernel"
)


def shown(port: int, peer_port: int) -> str:
    """What `ss` says of the broker's side."""
    done = subprocess.run(
        ["ss", "-tminH", "sport", "=", f":{port}", "dport", "=", f":{peer_port}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def receive_buffer(port: int, peer_port: int) -> int:
    """Bytes; the kernel doubles what was asked for."""
    found = re.search(r"rb(\d+)", shown(port, peer_port))
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("name", ["amqp", "amqps"])
def test_what_a_client_of_the_same_machine_is_sent_is_not_paced(
    make_broker: Make, authority: Authority, name: str
) -> None:
    broker = make_broker(amqps_port=0, tls_cert_file=authority.directory / "server.pem")
    host, port = broker.addresses[name]
    with socket.create_connection((host, port)) as plain:
        peer_port = plain.getsockname()[1]
        if name == "amqps":
            secure = authority.client_context().wrap_socket(plain, server_hostname="localhost")
            client: socket.socket = secure
        else:
            client = plain
        client.sendall(b"AMQP\x00\x00\x09\x01")
        assert client.recv(1)  # it is accepted
        assert " reno " in shown(port, peer_port)
        client.close()
    broker.close()


@pytest.mark.parametrize(("setting", "wanted"), [(65_536, 131_072), (200_000, 400_000)])
def test_a_client_of_the_same_machine_has_a_bounded_buffer(
    make_broker: Make, setting: int, wanted: int
) -> None:
    broker = make_broker(local_receive_buffer=str(setting))
    with Client.open((broker.host, broker.amqp_port)) as client:
        assert receive_buffer(broker.amqp_port, client.socket.getsockname()[1]) == wanted
    broker.close()


def test_the_systems_own_can_be_kept(make_broker: Make) -> None:
    broker = make_broker(local_receive_buffer="0")
    with Client.open((broker.host, broker.amqp_port)) as client:
        found = receive_buffer(broker.amqp_port, client.socket.getsockname()[1])
    assert found == int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[1])
    broker.close()


needs_growth = pytest.mark.skipif(
    tuple(map(int, platform.release().split(".")[:2])) < (5, 14),
    reason="before Linux 5.14 a bound is for good",
)


@needs_growth
@pytest.mark.parametrize("client_class", [Client, TLSClient])
@pytest.mark.parametrize(
    ("first", "may_grow"),
    [
        (b"", False),
        (method(1, "confirm.select"), True),
        (publish(1, "amq.fanout", "", bytes(100_000)), True),
    ],
    ids=["nothing", "confirm.select", "a long message"],
)
def test_it_grows_behind_publisher_confirms_and_long_messages(
    make_broker: Make,
    authority: Authority,
    client_class: type[Client],
    first: bytes,
    may_grow: bool,
) -> None:
    broker = make_broker(
        local_receive_buffer="16384",
        amqps_port=0,
        tls_cert_file=authority.directory / "server.pem",
    )
    address = broker.addresses["amqps" if client_class is TLSClient else "amqp"]
    extra = {"context": authority.client_context()} if client_class is TLSClient else {}
    with client_class((address[0], address[1]), **extra) as client:
        client.start()
        client.send_method(0, "connection.open", virtual_host="/")
        client.expect("connection.open-ok", 0)
        for channel in (1, 2):
            client.call(channel, "channel.open")
        client.socket.sendall(first)
        if first.startswith(method(1, "confirm.select")):
            client.expect("confirm.select-ok", 1)
        for _ in range(10):
            client.socket.sendall(publish(2, "amq.fanout", "", bytes(1_000)) * 4_000)
            client.call(2, "exchange.declare", exchange="amq.fanout", type="fanout", passive=True)
            grown = receive_buffer(address[1], client.socket.getsockname()[1]) > 32_768
            if grown:
                break
        assert grown == may_grow
    broker.close()
