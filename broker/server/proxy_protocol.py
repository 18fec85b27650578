"""PROXY protocol version 2: how the web process tells whose connection it relays.

It is believed only on the private relay socket; a peer elsewhere that sends it is refused like any
other bytes that are not AMQP (PROXY protocol specification, section 2.2).
"""

from __future__ import annotations

import ipaddress

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LENGTH_MAX = 512
_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21

Address = tuple[str, int]


class ProxyError(Exception):
    """Bytes that are no PROXY header of version 2."""


def parse(data: bytes) -> tuple[int, Address | None, Address | None] | None:
    """Length of the header in bytes, source and destination; None when more bytes are needed.

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


def _address(packed: bytes, port: bytes) -> Address:
    """An IPv4 address that came as IPv6 is given in its own form."""
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int.from_bytes(port, "big")
