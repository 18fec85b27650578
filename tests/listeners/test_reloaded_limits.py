"""What SIGHUP has changed is what counts: the limits that `test_reload.py` does not look at."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.amqp import raw
from tests.appliance import Appliance
from tests.conftest import Make
from tests.listeners.conftest import hang_up
from tests.listeners.test_every_port import timer_of
from tests.listeners.test_tls import until

Reload = Callable[..., None]


@pytest.fixture
def broker(make_broker: Make, tmp_path: Path) -> Appliance:
    (tmp_path / "leveret.ini").write_text("")
    return make_broker(config=tmp_path / "leveret.ini")


@pytest.fixture
def reload(broker: Appliance, tmp_path: Path) -> Reload:
    """Writes settings of a section into the file and waits until they are in force."""

    def reload(section: str, **values: str) -> None:
        lines = [f"{name} = {value}" for name, value in values.items()]
        (tmp_path / "leveret.ini").write_text("\n".join([f"[{section}]", *lines]) + "\n")
        broker.signal(signal.SIGHUP)
        for name in values:
            until(f"settings: {name} is ", broker)

    return reload


def address(broker: Appliance) -> tuple[str, int]:
    return broker.host, broker.amqp_port


def test_the_limits_of_connections(broker: Appliance, reload: Reload) -> None:
    reload(
        "amqp",
        channel_max="3",
        max_unacked="2",
        handshake_timeout="300 ms",
        tcp_keepalive="7:1:1",
        pre_login_bytes="8 KiB",
    )
    with socket.create_connection(address(broker), 60) as silent:
        assert timer_of(broker.amqp_port, silent.getsockname()[1])[1] <= 7
        assert silent.recv(1) == b"", "handshake_timeout"
    with raw.Client(address(broker)) as client:
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(raw.method(0, "connection.start-ok", client_properties={"x": "y" * 9000}))
        client.expect_end()
    reload("amqp", channel_max="3", max_unacked="2", handshake_timeout="20 s")
    with raw.Client.open(address(broker)) as client:
        assert client.tune is not None and client.tune.channel_max == 3
        queue = client.call(1, "queue.declare", exclusive=True).queue
        for _ in range(4):
            client.publish(1, "", queue, b"x")
        client.call(1, "basic.consume", queue=queue)
        client.expect_messages(2, 1)
        client.fence(1)


def test_the_limits_of_logins(broker: Appliance, reload: Reload) -> None:
    reload("login", login_failures_max="1", login_backoff_max="1 s")
    for _ in range(2):
        with raw.Client(address(broker)) as client:
            client.is_refused("stranger", "wrong")
    until("Too many wrong passwords for this user from this address", broker)


def test_the_disk_s_and_the_memory_s(broker: Appliance, reload: Reload) -> None:
    reload("store", disk_free_limit="1000000 GiB", memory_high_watermark="1 MiB")
    until("disk alarm:", broker)
    until("memory alarm:", broker)
    with raw.Client.open(address(broker)) as client:
        client.publish(1, "amq.fanout", "", b"x")
        client.expect("connection.blocked", 0)
        reload("store", disk_free_limit="1 MiB", memory_high_watermark="0.99")
        client.expect("connection.unblocked", 0)


def test_the_pages_that_may_come_in(broker: Appliance, reload: Reload) -> None:
    page = Origin("https://shop.example")
    with pytest.raises(InvalidStatus, match="403"):
        connect(broker.ws_url, origin=page, open_timeout=60)
    reload("http", allowed_origins="https://shop.example")
    with connect(broker.ws_url, origin=page, open_timeout=60) as socket:
        socket.send(raw.PROTOCOL_HEADER)
        assert socket.recv(10)
    reload("http", allowed_origins="https://other.example")
    deadline = time.monotonic() + 60
    while True:
        try:
            with connect(broker.ws_url, origin=page, open_timeout=60):
                pass
        except InvalidStatus:
            break
        assert time.monotonic() < deadline


def test_it_listens_where_it_did(broker: Appliance, reload: Reload) -> None:
    """Nothing of the above has closed a listener."""
    reload("amqp", heartbeat="1")
    assert hang_up(address(broker), b"GET / HTTP/1.1\r\n\r\n") == raw.PROTOCOL_HEADER
