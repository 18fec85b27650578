"""The PROXY header of the private relay socket."""

import pytest

from broker.server.proxy_protocol import SIGNATURE, ProxyError, parse
from management.relay import proxy_header

SCOPE = {"client": ("203.0.113.7", 50123), "server": ("192.0.2.1", 15672)}


def test_it_reads_what_the_relay_writes() -> None:
    header = proxy_header(SCOPE)
    parsed = parse(header + b"AMQP")
    assert parsed == (len(header), ("203.0.113.7", 50123), ("192.0.2.1", 15672))


@pytest.mark.parametrize("size", range(len(proxy_header(SCOPE))))
def test_it_waits_for_the_whole_header(size: int) -> None:
    assert parse(proxy_header(SCOPE)[:size]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"AMQP\x00\x00\x09\x01",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 50123 15672\r\n",
        SIGNATURE + b"\x31\x11\x00\x00",
        SIGNATURE + b"\x21\x11\x00\x00",
        SIGNATURE + b"\x21\x11\x00\x04aaaa",
        SIGNATURE + b"\x21\x31\x00\xd8" + b"/" * 216,
        SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_it_refuses_what_is_no_header_of_version_2(data: bytes) -> None:
    with pytest.raises(ProxyError):
        parse(data)


def test_it_passes_over_additions_behind_the_addresses() -> None:
    header = bytearray(proxy_header(SCOPE))
    header[14:16] = (int.from_bytes(header[14:16], "big") + 3).to_bytes(2, "big")
    parsed = parse(bytes(header) + b"\x04\x00\x00" + b"AMQP")
    assert parsed is not None
    assert parsed[:2] == (len(header) + 3, ("203.0.113.7", 50123))
