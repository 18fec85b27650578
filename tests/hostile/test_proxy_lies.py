"""PROXY headers that are wrong, too long, or from those who may send none."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from broker.server.proxy_protocol import LENGTH_MAX, LINE_MAX, SIGNATURE, ProxyError, parse_any
from tests.amqp import raw
from tests.amqp.test_permissions import ALL, ask
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.hostile.figures import forget_peak, peak_bytes, resident_bytes
from tests.listeners.conftest import hang_up
from tests.listeners.test_proxy import FOUR, LINE, LOCAL, enter, version_2

FROM, TO = bytes([203, 0, 113, 7]), bytes([192, 0, 2, 1])


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A broker that believes proxies on this machine, and has a user for those who are not."""
    for make in _maker("broker", tmp_path_factory.mktemp("trusting")):
        broker = make(proxy_protocol_sources="127.0.0.0/8")
        ask(broker, "user.put", name="ada", password="secret", tags="")
        ask(broker, "permission.put", vhost="/", user="ada", **ALL)
        yield broker


def additions(*pairs: tuple[int, bytes]) -> bytes:
    """Type, length and value of each (PROXY, section 2.2.7)."""
    return b"".join(struct.pack(">BH", kind, len(value)) + value for kind, value in pairs)


ROOM = LENGTH_MAX - 12


@pytest.mark.parametrize(
    "extra",
    [
        additions(*[(0xEE, b"")] * (ROOM // 3)),
        additions((0x02, b"\xff" * (ROOM - 3))),
        struct.pack(">BH", 0x20, 0xFFFF) + b"x" * 100,
        additions((0x01, b"h2"), (0x20, b"\x07\0\0\0\0" + additions((0x21, b"TLSv1.3")) * 20)),
        b"\0" * ROOM,
    ],
    ids=["many", "long", "a length that lies", "nested", "zeros"],
)
def test_additions_of_any_kind_are_left_out(trusting: Appliance, extra: bytes) -> None:
    with raw.Client((trusting.host, trusting.amqp_port)) as client:
        enter(client, version_2(FROM, TO, extra=extra))
        (row,) = ask(trusting, "list", noun="connections")["items"]
        assert row["peer_host"] == "203.0.113.7"


@pytest.mark.parametrize(
    "header",
    [
        SIGNATURE + struct.pack(">BBH", 0x21, 0x11, LENGTH_MAX + 1) + bytes(LENGTH_MAX + 1),
        SIGNATURE + struct.pack(">BBH", 0x21, 0x11, 0xFFFF) + bytes(100),
        SIGNATURE + struct.pack(">BBH", 0x21, 0x11, 11) + bytes(11),
        SIGNATURE + struct.pack(">BBH", 0x21, 0x21, 12) + bytes(12),
        SIGNATURE + struct.pack(">BBH", 0x21, 0x31, 216) + bytes(216),
        SIGNATURE + struct.pack(">BBH", 0x21, 0x00, 0),
        SIGNATURE + struct.pack(">BBH", 0x22, 0x11, 12) + bytes(12),
        SIGNATURE + struct.pack(">BBH", 0x11, 0x11, 12) + bytes(12),
        SIGNATURE + struct.pack(">BBH", 0x31, 0x11, 12) + bytes(12),
        SIGNATURE[:11] + b"\x0b" + bytes(16),
        b"PROXY TCP4 " + b"1" * LINE_MAX + b"\r\n",
        b"PROXY UNKNOWN " + b"x" * LINE_MAX + b"\r\n",
        b"PROXY TCP4 0x7f.1 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 203.0.113.007 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 1 2\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 1 2 3\r\n",
        b"PROXY TCP4 203.0.113.7\t192.0.2.1 1 2\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 \xb2 2\r\n",
        b"proxy TCP4 203.0.113.7 192.0.2.1 1 2\r\n",
    ],
)
def test_what_is_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(ProxyError):
        while parse_any(header) is None:
            assert len(header) <= 16 + LENGTH_MAX, "it waits for more than a header has"
            header += b"x"


@pytest.mark.parametrize("second", [LINE, FOUR, LOCAL])
def test_a_second_header_behind_the_first_is_no_amqp(trusting: Appliance, second: bytes) -> None:
    """A client behind a proxy may not tell an address of its own."""
    answer = hang_up((trusting.host, trusting.amqp_port), LINE + second + raw.PROTOCOL_HEADER)
    assert answer == b"AMQP\x00\x00\x09\x01"


@pytest.mark.parametrize("told", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0"])
def test_no_told_address_lets_guest_in(trusting: Appliance, told: str) -> None:
    family = b"TCP6 " if ":" in told else b"TCP4 "
    other = b" ::1" if ":" in told else b" 127.0.0.1"
    line = b"PROXY " + family + told.encode() + other + b" 1 2\r\n"
    with raw.Client((trusting.host, trusting.amqp_port)) as client:
        client.send(line + raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(raw.start_ok(client_properties={"capabilities": raw.CAPABILITIES}))
        client.expect_connection_close(403, 0, 0, "ACCESS_REFUSED")


def test_headers_before_login_leave_nothing_in_memory(trusting: Appliance) -> None:
    pid = trusting.pids["broker"]
    forget_peak(pid)
    before = resident_bytes(pid)
    for _ in range(100):
        hang_up((trusting.host, trusting.amqp_port), b"PROXY " + b"x" * 500_000)
    assert peak_bytes(pid) - before < 8 << 20
