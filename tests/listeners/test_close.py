"""After close-ok the broker waits for the client to close: what is under way meets no reset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.test_permissions import ask
from tests.appliance import Appliance
from tests.conftest import Make
from tests.listeners.certificates import Authority
from tests.listeners.conftest import TLSClient
from tests.listeners.test_tls import address
from tests.listeners.test_unix_socket import UnixClient
from tests.websocket.test_doors import Client as WebSocketClient

DOORS = ("amqp", "amqps", "unix", "ws", "wss")
UNDER_WAY = raw.publish(1, "", "nowhere", bytes(100_000)) * 120
"""12 MB, more than the buffers of a socket hold."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Appliance]:
    """A broker with all doors, shared by the module."""
    directory = tmp_path_factory.mktemp("close")
    broker = Appliance(
        "broker",
        directory,
        tls_cert_file=authority.directory / "server.pem",
        amqps_port=0,
        wss_port=-1,
        unix_path=directory / "amqp.sock",
    )
    yield broker.start()
    broker.close()


def enter(broker: Appliance, authority: Authority, door: str) -> Any:
    """An open connection with channel 1."""
    match door:
        case "amqp":
            return raw.Client.open((broker.host, broker.amqp_port))
        case "amqps":
            return TLSClient(address(broker), authority.client_context(None)).use()
        case "unix":
            return UnixClient(Path(broker.settings["unix_path"])).use()
        case "ws":
            return WebSocketClient(broker.ws_url).use()
    _, port = address(broker, "wss")
    return WebSocketClient(f"wss://localhost:{port}/", ssl=authority.client_context(None)).use()


def under_way(door: str) -> bytes:
    """What is sent in one go: over a WebSocket, one message, which has a largest size."""
    return UNDER_WAY[:3_000_000] if door in ("ws", "wss") else UNDER_WAY


def is_cut(client: raw.Client) -> None:
    """The broker must end the socket while the client goes on sending."""
    with pytest.raises(OSError):
        while True:
            client.send(UNDER_WAY[:65536])


@pytest.mark.parametrize("door", DOORS)
def test_frames_behind_a_close_meet_no_reset(
    broker: Appliance, authority: Authority, door: str
) -> None:
    with enter(broker, authority, door) as client:
        client.send(raw.method(0, "connection.close", reply_code=200) + under_way(door))
        client.expect("connection.close-ok", 0)
        client.expect_end()


@pytest.mark.parametrize("door", DOORS)
def test_frames_behind_the_answer_to_the_brokers_close_meet_no_reset(
    broker: Appliance, authority: Authority, door: str
) -> None:
    with enter(broker, authority, door) as client:
        client.send_method(1, "basic.qos", prefetch_size=1)
        client.expect("connection.close", 0, reply_code=540)
        client.send(raw.method(0, "connection.close-ok") + under_way(door))
        client.expect_end()


@pytest.mark.parametrize("door", ["amqp", "amqps", "unix"])
def test_a_client_may_send_on_after_close_ok(
    broker: Appliance, authority: Authority, door: str
) -> None:
    with enter(broker, authority, door) as client:
        client.send_method(0, "connection.close", reply_code=200)
        client.expect("connection.close-ok", 0)
        client.expect_end()
        client.send(UNDER_WAY)


def test_a_client_that_left_much_unread_gets_it_all_and_then_close_ok(broker: Appliance) -> None:
    with raw.Client.open((broker.host, broker.amqp_port)) as client:
        queue = client.call(1, "queue.declare", exclusive=True).queue
        client.call(1, "confirm.select")
        client.send(raw.publish(1, "", queue, bytes(1_000_000)) * 20)
        client.expect_confirms(1, 20)
        client.call(1, "basic.consume", queue=queue, no_ack=True)
        client.send_method(0, "connection.close", reply_code=200)
        # Nothing is read until the broker has seen the end, which takes the queue away.
        while any(row["name"] == queue for row in ask(broker, "list", noun="queues")["items"]):
            pass
        got = client.read_method()
        while got.name == "basic.deliver":
            assert len(client.read_content(got).body) == 1_000_000
            got = client.read_method()
        assert got.name == "connection.close-ok"
        client.expect_end()


def test_a_connection_is_over_with_close_ok_though_its_socket_stays(make_broker: Make) -> None:
    broker = make_broker()
    with raw.Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue="mine", exclusive=True)
        client.send_method(0, "connection.close", reply_code=200)
        client.expect("connection.close-ok", 0)
        assert ask(broker, "list", noun="connections")["items"] == []
        with raw.Client.open((broker.host, broker.amqp_port)) as other:
            other.call(1, "queue.declare", queue="mine", exclusive=True)


def close(client: raw.Client) -> None:
    client.send_method(0, "connection.close", reply_code=200)
    client.expect("connection.close-ok", 0)


@pytest.mark.parametrize(
    "limits",
    [
        {"close_discard_max": 1_000_000},
        {"close_discard_max": 2**40, "close_timeout": "300 ms"},
    ],
    ids=["bytes", "time"],
)
def test_the_wait_for_a_client_is_bounded(make_broker: Make, limits: dict[str, Any]) -> None:
    broker = make_broker(**limits)
    with raw.Client.open((broker.host, broker.amqp_port)) as client:
        close(client)
        is_cut(client)


def test_the_number_of_clients_that_are_waited_for_is_bounded(make_broker: Make) -> None:
    broker = make_broker(closing_max=1, close_discard_max=2**40)
    place = broker.host, broker.amqp_port
    with raw.Client.open(place) as one, raw.Client.open(place) as another:
        close(one)
        close(another)
        is_cut(one)
        another.send(UNDER_WAY)


def test_a_stop_waits_for_no_client_for_long(make_broker: Make) -> None:
    broker = make_broker()
    with raw.Client.open((broker.host, broker.amqp_port)) as client:
        close(client)
        broker.stop()
