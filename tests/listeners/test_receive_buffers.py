"""The kernel's receive buffer of a connection from the same machine is bounded, and so are
segments of TCP."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.amqp.raw import Client
from tests.bench import generator
from tests.conftest import Make

pytestmark = pytest.mark.skipif(
    shutil.which("ss") is None, reason="ss is not installed, which shows buffers of the kernel"
)


def receive_buffer(port: int, peer_port: int) -> int:
    """Bytes, of the broker's side, as `ss` says; the kernel doubles what was asked for."""
    done = subprocess.run(
        ["ss", "-tmnH", "sport", "=", f":{port}", "dport", "=", f":{peer_port}"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"rb(\d+)", done.stdout)
    assert found is not None, done.stdout
    return int(found[1])


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


def segment(port: int) -> int:
    """The most bytes of a segment that a client may send (RFC 9293, 3.7.1)."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)


@pytest.mark.parametrize(("setting", "most"), [("4096", 4096), ("1460", 1460)])
def test_a_client_is_asked_for_segments_of_the_set_size(
    make_broker: Make, setting: str, most: int
) -> None:
    broker = make_broker(tcp_max_segment=setting)
    assert most - 40 <= segment(broker.amqp_port) <= most  # options of TCP are of the segment
    broker.close()


def test_the_systems_own_segments_can_be_kept(make_broker: Make) -> None:
    broker = make_broker(tcp_max_segment="0")
    assert segment(broker.amqp_port) > 16_384
    broker.close()


@pytest.mark.parametrize("clients", ["1", "4"])
def test_nothing_is_lost_or_disordered_of_clients_that_flush_each_message(
    make_broker: Make, clients: str
) -> None:
    """Their sockets rest between chunks, if this machine has time for it: the generator counts."""
    broker = make_broker()
    options = ["--publishers", clients, "--queues", clients, "--consumers", clients]
    pace = ["--flush", "--in-flight", "20000", "--warmup", "0.2", "--duration", "1"]
    assert generator.run(broker.amqp_port, options + pace)["rate"] > 0
    broker.close()
