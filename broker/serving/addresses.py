"""Addresses of peers: which are this machine's own, and which count as one."""

from __future__ import annotations

import functools
import ipaddress

KEPT = 1_024
KEPT_MAX = 64
"""Characters of an address that is remembered; a valid one is shorter."""


def is_loopback(peer: str) -> bool:
    """Whether a peer address is this machine's own; a Unix socket is."""
    return _told(peer)[0]


def address_of(peer: str) -> str:
    """The address that limits go by: whole for IPv4, the /64 network for IPv6."""
    return _told(peer)[1]


def _told(peer: str) -> tuple[bool, str]:
    return _read(peer) if len(peer) <= KEPT_MAX else _read.__wrapped__(peer)


@functools.lru_cache(KEPT)
def _read(peer: str) -> tuple[bool, str]:
    """Both of the above."""
    if peer == "unix":
        return True, peer
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False, peer[:64]
    address = getattr(address, "ipv4_mapped", None) or address
    if isinstance(address, ipaddress.IPv6Address):
        return address.is_loopback, str(ipaddress.ip_network((address, 64), strict=False))
    return address.is_loopback, str(address)
