"""The kernel's receive buffer of a connection from the same machine is bounded."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.amqp.raw import Client
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
