"""Which addresses a shovel may connect to. The address that was checked is the one connected to.

Metadata services of clouds and link-local addresses give credentials to any program on the
machine: they are refused unless `bridges_allowed` names them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

from management.bridges.plan import ShovelFailed

RESOLVE_TIMEOUT_S = 15.0
RESOLVED_AT_ONCE = 32
"""Names that are looked up at once; one that no server answers for takes its thread a while."""
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
        self._free = asyncio.Semaphore(RESOLVED_AT_ONCE)
        self._asked: dict[str, asyncio.Task[list[str]]] = {}
        """Names that are being looked up: many that want one ask once."""

    def check(self, host: str, text: str) -> None:
        """Raises ShovelFailed unless a shovel may connect to this address of this host."""
        wrong = self._wrong(host, _real(ipaddress.ip_address(text.partition("%")[0])))
        if wrong is not None:
            shown = host if host == text else f"{host} ({text})"
            raise ShovelFailed(f"connections to {shown} are {wrong}", step="address")

    def _wrong(self, host: str, address: Address) -> str | None:
        if self._denied.hold(host, address):
            return "denied (bridges_denied)"
        if self._allowed.hold(host, address):
            return None
        if self._allowed:
            return "not allowed (bridges_allowed)"
        if _plain(host) in METADATA_NAMES or any(address in each for each in METADATA):
            return "denied: it is a metadata or link-local address (bridges_allowed may name it)"
        if address.is_unspecified or address.is_multicast:
            return "denied: it is no address of a host"
        return None

    async def resolve(self, host: str) -> list[str]:
        """The addresses of a host that may be connected to, in the resolver's order. Raises
        ShovelFailed."""
        addresses = [host] if _is_address(host) else await self._look_up(host)
        for address in addresses:
            self.check(host, address)
        return addresses

    async def _look_up(self, host: str) -> list[str]:
        task = self._asked.get(host)
        if task is None:
            task = self._asked[host] = asyncio.create_task(self._ask(host))
            task.add_done_callback(lambda done: self._answered(host, done))
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                return await asyncio.shield(task)
        except TimeoutError:
            text = f"the name {host} was not resolved within {RESOLVE_TIMEOUT_S:g} seconds"
            raise ShovelFailed(text, step="name") from None

    def _answered(self, host: str, task: asyncio.Task[list[str]]) -> None:
        self._asked.pop(host, None)
        if not task.cancelled():
            task.exception()  # the caller has seen it, or has left

    async def _ask(self, host: str) -> list[str]:
        async with self._free:
            try:
                found = await _in_thread(
                    lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                )
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or error
                text = f"the name {host} cannot be resolved: {reason}"
                raise ShovelFailed(text, step="name") from None
        return list(dict.fromkeys(str(row[4][0]) for row in found))


async def _in_thread(work: Callable[[], Any]) -> Any:
    """What it returns. The end of the process does not wait for it, as it would for a thread of an
    executor."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(found: Any, error: Exception | None) -> None:
        if not future.done() and error is None:
            future.set_result(found)
        elif not future.done():
            future.set_exception(error or OSError())

    def run() -> None:
        found, failed = None, None
        try:
            found = work()
        except Exception as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, found, failed)

    threading.Thread(target=run, name="name", daemon=True).start()
    return await future


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


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
