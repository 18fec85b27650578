"""PROXY protocol versions 1 and 2: how a proxy tells whose connection it relays.

It is believed on the private relay socket of the web process, and from the addresses that
`proxy_protocol_sources` names, where it is demanded; a peer elsewhere that sends it is refused like
any other bytes that are not AMQP (PROXY protocol specification, section 2).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LENGTH_MAX = 512
LINE_MAX = 107
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
_FAMILIES = {"TCP4": 4, "TCP6": 6}

Address = tuple[str, int]
Parsed = tuple[int, Address | None, Address | None]


class ProxyError(Exception):
    """Bytes that are no PROXY header."""


class Sources:
    """The networks whose proxies are believed."""

    def __init__(self, networks: Collection[str]) -> None:
        self._networks = [ipaddress.ip_network(each) for each in networks]

    def __contains__(self, address: str) -> bool:
        if not self._networks:
            return False
        parsed = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(parsed, "ipv4_mapped", None)
        return any((mapped or parsed) in each for each in self._networks)


def parse(data: bytes) -> Parsed | None:
    """Length of a header of version 2 in bytes, source and destination; None when more bytes are
    needed.

    The addresses are None for LOCAL, which is the relay's own. Raises `ProxyError`.
    """
    if data[:12] != SIGNATURE[: len(data)]:
        raise ProxyError("no PROXY header of version 2")
    if len(data) < 16:
        return None
    command, family = data[12], data[13]
    length = int.from_bytes(data[14:16], "big")
    if length > LENGTH_MAX:
        raise ProxyError(f"PROXY header of {length} bytes")
    if len(data) < 16 + length:
        return None
    if command == _LOCAL:
        return 16 + length, None, None
    size = {_TCP4: 4, _TCP6: 16}.get(family)
    if command != _PROXY or size is None or length < 2 * size + 4:
        raise ProxyError(f"PROXY command {command:#04x} for family {family:#04x}")
    ports = 16 + 2 * size
    source = _address(data[16 : 16 + size], data[ports : ports + 2])
    destination = _address(data[16 + size : ports], data[ports + 2 : ports + 4])
    return 16 + length, source, destination


def parse_any(data: bytes) -> Parsed | None:
    """As `parse`, for version 1 (a line of text) too."""
    if data[:1] != b"P":
        return parse(data)
    if data[:6] != b"PROXY "[: len(data)]:
        raise ProxyError("no PROXY header")
    line, end, _ = data[:LINE_MAX].partition(b"\r\n")
    if not end:
        if len(data) >= LINE_MAX:
            raise ProxyError("PROXY line without an end")
        return None
    length = len(line) + 2
    words = line.decode("latin-1").split(" ")
    if words[1:2] == ["UNKNOWN"]:
        return length, None, None
    version = _FAMILIES.get(words[1]) if len(words) == 6 else None
    if version is None:
        raise ProxyError("PROXY line that is neither TCP4, TCP6 nor UNKNOWN")
    hosts = []
    for text, port in ((words[2], words[4]), (words[3], words[5])):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise ProxyError("PROXY line without an address") from None
        number = int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else 65536
        if address.version != version or number > 65535 or "%" in text:
            raise ProxyError("PROXY line with an address or port that does not fit")
        hosts.append(_address(address.packed, number.to_bytes(2, "big")))
    return length, hosts[0], hosts[1]


def _address(packed: bytes, port: bytes) -> Address:
    """An IPv4 address that came as IPv6 is given in its own form."""
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int.from_bytes(port, "big")
