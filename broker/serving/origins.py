"""Which names may lead to this machine's listeners for browsers, and which pages may use them.

A page opens WebSockets to any host, so the Origin is checked: a page of the same host and port may,
others only if they are named in the settings. And a page can point its own host name at 127.0.0.1
after it was loaded ("rebinding"): then Origin and Host agree and the loopback address would let it
sign in as guest. Such a request shows itself by its Host, which names neither an address nor this
machine; from loopback it is refused.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}


def is_loopback(address: str) -> bool:
    """Whether only this machine can be behind an address. An unknown form is not loopback."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def host_accepted(host: str, peer: str, allowed: Collection[str]) -> bool:
    """Whether a request with this Host header may come from this peer address.

    From loopback the host must be an address, `localhost`, a name of this machine, or in `allowed`.
    """
    if not is_loopback(peer):
        return True
    name = host_name(host)
    if name in allowed or name in _own_names() or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def origin_allowed(origin: str, host: str, secure: bool, allowed: Collection[str]) -> bool:
    """Whether a page of `origin` may use the listener that was called by this Host header.

    No origin is allowed: that is no browser, and it holds no credentials of a user. `secure` tells
    which port a Host without port means. `*` in `allowed` allows every page.
    """
    if not origin or "*" in allowed or origin in allowed:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.scheme not in DEFAULT_PORTS or not parts.netloc:
        return False
    own = _split(host, DEFAULT_PORTS["https" if secure else "http"])
    return bool(own[0]) and own == _split(parts.netloc, DEFAULT_PORTS[parts.scheme])


def host_name(host: str) -> str:
    """The name in a Host header, in lower case and without port; empty if it is malformed."""
    return _split(host, 0)[0]


def _split(host: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "").rstrip("."), parts.port or default_port
    except ValueError:
        return "", 0


@functools.cache
def _own_names() -> frozenset[str]:
    return frozenset({"localhost", socket.gethostname().lower(), socket.getfqdn().lower()})
