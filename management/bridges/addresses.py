"""Which addresses a shovel may connect to. The address that was checked is the one connected to.

Metadata services of clouds and link-local addresses give credentials to any program on the
machine: they are refused unless `bridges_allowed` names them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

from management.bridges.plan import ShovelFailed

RESOLVE_TIMEOUT_S = 15.0
METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data"})
METADATA = tuple(
    ipaddress.ip_network(each)
    for each in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::254/128",
        "100.100.100.200/32",
        "192.0.0.192/32",
    )
)
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Places:
    """Names and networks of a setting."""

    def __init__(self, words: Iterable[str]) -> None:
        self.names: set[str] = set()
        self.networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for word in words:
            try:
                self.networks.append(ipaddress.ip_network(word, strict=False))
            except ValueError:
                self.names.add(_plain(word))

    def hold(self, name: str, address: Address) -> bool:
        return _plain(name) in self.names or any(address in each for each in self.networks)

    def __bool__(self) -> bool:
        return bool(self.names or self.networks)


class Addresses:
    """The rules of the settings `bridges_allowed` and `bridges_denied`."""

    def __init__(self, allowed: Iterable[str], denied: Iterable[str]) -> None:
        self._allowed = Places(allowed)
        self._denied = Places(denied)

    def check(self, host: str, text: str) -> None:
        """Raises ShovelFailed unless a shovel may connect to this address of this host."""
        address = _real(ipaddress.ip_address(text.partition("%")[0]))
        shown = host if host == text else f"{host} ({text})"
        if self._denied.hold(host, address):
            raise ShovelFailed(f"connections to {shown} are denied (bridges_denied)")
        if self._allowed.hold(host, address):
            return
        if self._allowed:
            raise ShovelFailed(f"connections to {shown} are not allowed (bridges_allowed)")
        if _plain(host) in METADATA_NAMES or any(address in each for each in METADATA):
            raise ShovelFailed(
                f"connections to {shown} are denied: it is a metadata or link-local address"
                " (bridges_allowed may name it)"
            )
        if address.is_unspecified or address.is_multicast:
            raise ShovelFailed(f"connections to {shown} are denied: it is no address of a host")

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a host that may be connected to, in the resolver's order. Raises
        ShovelFailed."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise ShovelFailed(
                f"the name {host} was not resolved within {RESOLVE_TIMEOUT_S:g} seconds"
            ) from None
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ShovelFailed(f"the name {host} cannot be resolved: {reason}") from None
        addresses = list(dict.fromkeys(str(row[4][0]) for row in found))
        for address in addresses:
            self.check(host, address)
        return addresses


def _plain(name: str) -> str:
    return name.rstrip(".").lower()


def _real(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to, if it does."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
