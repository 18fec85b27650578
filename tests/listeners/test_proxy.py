"""Proxies in front of the broker: believed where they are trusted, and only there."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from broker.server.proxy_protocol import LINE_MAX, SIGNATURE, ProxyError, Sources, parse_any
from tests.amqp import raw
from tests.amqp.test_permissions import ALL, ask
from tests.appliance import Appliance
from tests.conftest import Make
from tests.listeners.certificates import Authority
from tests.listeners.conftest import TLSClient, hang_up
from tests.listeners.test_tls import until

LINE = b"PROXY TCP4 203.0.113.7 192.0.2.1 50123 5672\r\n"
PEER = ("203.0.113.7", 50123)


def version_2(source: bytes, destination: bytes, family: int = 0x11, extra: bytes = b"") -> bytes:
    addresses = source + destination + struct.pack(">HH", 50123, 5672) + extra
    return SIGNATURE + struct.pack(">BBH", 0x21, family, len(addresses)) + addresses


FOUR = version_2(bytes([203, 0, 113, 7]), bytes([192, 0, 2, 1]))
SIX = version_2(bytes(15) + b"\x01", bytes(15) + b"\x02", 0x21)
LOCAL = SIGNATURE + b"\x20\x00\x00\x00"


@pytest.fixture
def broker(make_broker: Make) -> Appliance:
    """Trusts proxies on this machine, and has a user for those who are not."""
    broker = make_broker(proxy_protocol_sources="127.0.0.0/8")
    ask(broker, "user.put", name="ada", password="secret", tags="")
    ask(broker, "permission.put", vhost="/", user="ada", **ALL)
    return broker


def enter(client: Any, header: bytes, **handshake: Any) -> None:
    """Sends the header in front of everything else, and signs in."""
    client.send(header)
    client.start(**{"user": "ada", "password": "secret", **handshake})
    client.send_method(0, "connection.open", virtual_host="/")
    client.expect("connection.open-ok", 0)


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        (LINE, PEER),
        (FOUR, PEER),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 50123 5672\r\n", ("2001:db8::7", 50123)),
        (SIX, ("::1", 50123)),
        (version_2(bytes([203, 0, 113, 7]), bytes(4), extra=b"\x04\x00\x01x"), PEER),
    ],
    ids=["v1", "v2", "v1-ipv6", "v2-ipv6", "v2-additions"],
)
def test_the_told_address_is_the_peer_s(
    broker: Appliance, header: bytes, peer: tuple[str, int]
) -> None:
    with raw.Client((broker.host, broker.amqp_port)) as client:
        enter(client, header)
        (row,) = ask(broker, "list", noun="connections")["items"]
        assert (row["peer_host"], row["peer_port"]) == peer


def test_a_header_may_come_one_byte_at_a_time(broker: Appliance) -> None:
    with raw.Client((broker.host, broker.amqp_port)) as client:
        for byte in LINE[:-1]:
            client.send(bytes([byte]))
        enter(client, LINE[-1:])


def test_what_follows_in_the_same_packet_is_not_lost(broker: Appliance) -> None:
    with raw.Client((broker.host, broker.amqp_port)) as client:
        client.send(LINE + raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)


def test_confirms_and_long_messages_pass(broker: Appliance) -> None:
    with raw.Client((broker.host, broker.amqp_port)) as client:
        enter(client, LINE)
        client.call(1, "channel.open")
        client.call(1, "confirm.select")
        client.publish(1, "", "nowhere", bytes(3_000_000))
        client.expect("basic.ack", 1, delivery_tag=1)


@pytest.mark.parametrize("header", [LINE, SIX, LOCAL, b"PROXY UNKNOWN\r\n"])
def test_guest_never_gets_in_through_a_proxy(broker: Appliance, header: bytes) -> None:
    """Whatever address is told, this machine's own included."""
    with raw.Client((broker.host, broker.amqp_port)) as client:
        client.send(header + raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(raw.start_ok(client_properties={"capabilities": raw.CAPABILITIES}))
        client.expect_connection_close(403, 0, 0, "ACCESS_REFUSED")
    until("User can only log in via localhost", broker)


@pytest.mark.parametrize(
    "said",
    [
        raw.PROTOCOL_HEADER,
        b"PROXY TCP4 203.0.113.7\r\n",
        b"PROXY TCP4 a b 1 2\r\n",
        b"PROXY " + b"x" * 200,
        SIGNATURE + b"\x21\x11\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_trusted_peer_without_a_header_is_hung_up_on(broker: Appliance, said: bytes) -> None:
    assert hang_up((broker.host, broker.amqp_port), said) == b""
    until("proxy 127.0.0.1", broker)


def test_a_header_that_does_not_come_is_not_waited_for(make_broker: Make) -> None:
    broker = make_broker(proxy_protocol_sources="127.0.0.1", handshake_timeout="200 ms")
    assert hang_up((broker.host, broker.amqp_port), b"PROX") == b""


@pytest.mark.parametrize("sources", [None, "203.0.113.0/24"])
@pytest.mark.parametrize("header", [LINE, FOUR])
def test_a_header_of_a_stranger_ends_the_connection(
    make_broker: Make, sources: str | None, header: bytes
) -> None:
    broker = make_broker(proxy_protocol_sources=sources)
    answer = hang_up((broker.host, broker.amqp_port), header + raw.PROTOCOL_HEADER)
    assert answer == b"AMQP\x00\x00\x09\x01"


def test_it_stands_before_tls(make_broker: Make, authority: Authority) -> None:
    broker = make_broker(
        proxy_protocol_sources="127.0.0.1",
        tls_cert_file=authority.directory / "server.pem",
        amqps_port=0,
    )
    ask(broker, "user.put", name="ada", password="secret", tags="administrator")
    ask(broker, "permission.put", vhost="/", user="ada", **ALL)
    host, port = broker.addresses["amqps"]

    class Behind(TLSClient):
        def __init__(self) -> None:
            raw.Client.__init__(self, (host, port))
            self.send(LINE)
            self.socket = authority.client_context().wrap_socket(
                self.socket, server_hostname="localhost"
            )

    with Behind() as client:
        enter(client, b"")
        (row,) = ask(broker, "list", noun="connections")["items"]
        assert (row["peer_host"], row["ssl"]) == (PEER[0], True)


@pytest.mark.parametrize(
    "line",
    [
        b"PROXY TCP4 203.0.113.7 192.0.2.1 50123 65536\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 -1 5672\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 +1 5672\r\n",
        b"PROXY TCP4 2001:db8::7 192.0.2.1 1 5672\r\n",
        b"PROXY TCP6 203.0.113.7 192.0.2.1 1 5672\r\n",
        b"PROXY TCP6 fe80::1%eth0 fe80::2 1 5672\r\n",
        b"PROXY UDP4 203.0.113.7 192.0.2.1 1 5672\r\n",
        b"PROXY TCP4  203.0.113.7 192.0.2.1 1 5672\r\n",
        b"PROXY\r\n",
        b"PROXZ",
        b"P" * LINE_MAX,
        b"PROXY " + b"1" * LINE_MAX,
    ],
)
def test_it_refuses_lines_that_are_no_header(line: bytes) -> None:
    with pytest.raises(ProxyError):
        parse_any(line)


@pytest.mark.parametrize("size", range(1, len(LINE)))
def test_it_waits_for_the_whole_line(size: int) -> None:
    assert parse_any(LINE[:size]) is None


def test_it_knows_who_is_trusted() -> None:
    sources = Sources(("10.0.0.0/8", "2001:db8::/32"))
    assert "10.1.2.3" in sources and "::ffff:10.1.2.3" in sources and "2001:db8::1" in sources
    assert "11.0.0.1" not in sources and "::1" not in sources
    assert "fe80::1%eth0" not in sources
    assert "127.0.0.1" not in Sources(())
