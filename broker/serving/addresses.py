"""Addresses of peers: which are this machine's own, and which count as one."""

from __future__ import annotations

import functools
import ipaddress

KEPT = 1_024
KEPT_MAX = 64
"""Characters of an address that is remembered; a valid one is shorter."""


def is_loopback(peer: str) -> bool:
    """Whether a peer address is this machine's own; a Unix socket is."""
    if peer == "unix":
        return True
    address = _parsed(peer)
    return address is not None and address.is_loopback


def address_of(peer: str) -> str:
    """The address that limits go by: whole for IPv4, the /64 network for IPv6."""
    address = _parsed(peer)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address) if address is not None else peer[:64]


def _parsed(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    return _read(peer) if len(peer) <= KEPT_MAX else _read.__wrapped__(peer)


@functools.lru_cache(KEPT)
def _read(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address
