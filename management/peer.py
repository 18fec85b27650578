"""The address a request's socket comes from, as the broker wants it told."""

import ipaddress

from management.paths import Scope


def peer_of(scope: Scope) -> str:
    """The peer's address without port; `unix` for a local socket.

    IPv4 addresses that arrive on an IPv6 socket are given in their own form. With trusted proxies
    configured this is the address the nearest trusted proxy vouches for.
    """
    client = scope.get("client")
    if not client or not client[0]:
        return "unix"
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return str(client[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
