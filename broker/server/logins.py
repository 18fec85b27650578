"""Password checks for every door: hashing in a small pool of threads, the rest in `Access`."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import argon2

from broker.access import Access, Job, Limits, Refused, User
from broker.access.passwords import hash_password, verify

if TYPE_CHECKING:
    from broker.config import Config

log = logging.getLogger(__name__)

_THREADS = 2
_BUSY = Refused("Too many logins at once; try again", 503, "busy")


class Logins:
    """Checks passwords without holding up the loop, `waiting_max` at a time. One hash takes about
    40 ms and 19 MiB."""

    def __init__(self, access: Access, waiting_max: int) -> None:
        self._access = access
        self.waiting_max = waiting_max
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="login")
        self._running: set[asyncio.Task[bool | None]] = set()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def check(
        self, user: str, password: str, peer: str, door: str, *, from_here: bool | None = None
    ) -> User | Refused:
        """The user, or why not.

        `peer` is an IP address without port, or `unix`; `door` is http, websocket or amqp.
        `from_here` says whether the peer is this machine, where the address alone does not.
        """
        address = address_of(peer)
        if from_here is None:
            from_here = is_loopback(peer)
        begun = self._access.begin(user, password, from_here, peer=address, door=door)
        if not isinstance(begun, Job):
            return begun
        if begun.outcome is None:
            if len(self._running) >= self.waiting_max:
                self._access.abandon(begun)
                return _BUSY
            # A task of its own: those who asked may go away, and the outcome still counts.
            begun.outcome = asyncio.create_task(self._verify(begun))
            self._running.add(begun.outcome)
            begun.outcome.add_done_callback(self._running.discard)
        ok = await asyncio.shield(begun.outcome)
        if ok is None:
            return _BUSY
        return self._access.finish(begun, ok, door=door)

    def check_certificate(
        self, user: str, peer: str, door: str, *, from_here: bool
    ) -> User | Refused:
        """The user that a verified client certificate names, or why not."""
        return self._access.begin_certified(user, from_here, peer=address_of(peer), door=door)

    async def hash(self, password: str) -> str:
        """The hash to keep for a new password."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, hash_password, password)

    async def fits(self, password: str, user: User) -> bool:
        """Whether a user has this password."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, verify, password, user.password_hash, user.hashing_algorithm
        )

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _verify(self, job: Job) -> bool | None:
        """Whether the password fits; None if it could not be looked at."""
        # Two at a time from one address, so that a flood from there leaves room for others.
        turns = self._turns.setdefault(job.peer, asyncio.Semaphore(_THREADS))
        try:
            async with turns:
                loop = asyncio.get_running_loop()
                ok = await loop.run_in_executor(self._pool, Access.verify, job)
        except (MemoryError, RuntimeError, argon2.exceptions.HashingError) as error:
            log.error("cannot check a password: %r", error)
            self._access.abandon(job)
            return None
        self._access.settle(job, ok)
        return ok


def limits_of(config: Config) -> Limits:
    """What the settings say about wrong passwords."""
    return Limits(
        failures_max=config.login_failures_max,
        address_failures_max=config.login_address_failures_max,
        longest_s=config.login_backoff_max,
        trusted_s=config.login_trusted_for,
    )


def is_loopback(peer: str) -> bool:
    """Whether a peer address is this machine's own; a Unix socket is."""
    if peer == "unix":
        return True
    address = _parsed(peer)
    return address is not None and address.is_loopback


def address_of(peer: str) -> str:
    """The address to count bad logins by: whole for IPv4, the /64 network for IPv6."""
    address = _parsed(peer)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address) if address is not None else peer[:64]


def _parsed(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address
