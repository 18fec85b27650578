"""Password checks for every protocol: hashing in a small pool of threads, the rest in `Access`."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import argon2

from broker.access import Access, Job, Limits, Refused, User
from broker.access.line import Line
from broker.access.passwords import hash_password, verify
from broker.serving.addresses import address_of, is_loopback

if TYPE_CHECKING:
    from broker.settings.config import Config

log = logging.getLogger(__name__)

THREADS = max(1, min(4, (os.cpu_count() or 2) // 2))
"""Half of the processors at most: the others stay for the loop and for the other processes. And
few: each hash takes 19 MiB."""
_BUSY = Refused("Too many logins at once; try again", 503, "busy")


class Logins:
    """Checks passwords without holding up the loop. One hash takes about 40 ms and 19 MiB;
    `threads` are computed at a time, and the others wait in a line in which addresses take turns.
    """

    def __init__(self, access: Access, config: Config, threads: int = THREADS) -> None:
        self._access = access
        self._threads = threads
        self.refusal_delay_s = config.login_refusal_delay
        self._line = Line(config.logins_waiting_max, config.logins_address_max)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="login")
        self._running: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Logins whose password waits to be checked."""
        return len(self._line)

    def configure(self, config: Config) -> None:
        """Sets the bounds; who waits already stays."""
        self._line.most = config.logins_waiting_max
        self._line.most_of_one = config.logins_address_max
        self.refusal_delay_s = config.login_refusal_delay

    async def check(
        self,
        user: str,
        password: str,
        peer: str,
        protocol: str,
        *,
        from_here: bool | None = None,
        again: bool = False,
    ) -> User | Refused:
        """The user, or why not. A login that is cancelled leaves the line; a password that is being
        checked already still counts.

        `peer` is an IP address without port, or `unix`; `protocol` is http, websocket or amqp.
        `from_here` says whether the peer is this machine, where the address alone does not.
        `again`: its connection was let in with the same user and password before.
        """
        begun = self.begin(user, password, peer, protocol, from_here=from_here, again=again)
        return await self.outcome(begun, protocol)

    def begin(
        self,
        user: str,
        password: str,
        peer: str,
        protocol: str,
        *,
        from_here: bool | None = None,
        again: bool = False,
    ) -> User | Refused | Job:
        """The same as far as no password has to be looked at; `outcome` is to follow, unless this
        is the user."""
        if from_here is None:
            from_here = is_loopback(peer)
        return self._access.begin(
            user, password, from_here, peer=address_of(peer), protocol=protocol, again=again
        )

    async def outcome(self, begun: User | Refused | Job, protocol: str) -> User | Refused:
        """What comes of a login that was begun."""
        if not isinstance(begun, Job):
            return await self._slowly(begun)
        if begun.outcome is None and not self._queue(begun):
            return await self._slowly(_BUSY)
        begun.askers += 1
        try:
            # Others may wait for the same password, and it still counts if all of them go.
            ok = await asyncio.shield(begun.outcome)
        finally:
            begun.askers -= 1
            if not begun.askers and self._line.remove(begun):
                self._access.abandon(begun)
        if ok is None:
            return _BUSY
        return self._access.finish(begun, ok, protocol=protocol)

    async def _slowly(self, outcome: User | Refused) -> User | Refused:
        """A refusal without a look at the password costs the broker little and the client nothing:
        clients that ask again at once, on hundreds of connections, have to wait."""
        if isinstance(outcome, Refused) and outcome.status != 401 and self.refusal_delay_s:
            # Not all of them at one moment.
            await asyncio.sleep(self.refusal_delay_s * random.uniform(0.5, 1))  # noqa: S311
        return outcome

    def _queue(self, job: Job) -> bool:
        """Whether there is a place for one more job."""
        waits, left = self._line.add(job)
        if left is not None:
            self._access.abandon(left)
            left.outcome.set_result(None)
        if not waits:
            self._access.abandon(job)
            return False
        job.outcome = asyncio.get_running_loop().create_future()
        self._start_next()
        return True

    def _start_next(self) -> None:
        while len(self._line) and len(self._running) < self._threads:
            # A task of its own: those who asked may go away, and the outcome still counts.
            task = asyncio.create_task(self._verify(self._line.take()))
            self._running.add(task)
            task.add_done_callback(self._verified)

    def _verified(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._start_next()

    def check_certificate(
        self, user: str, peer: str, protocol: str, *, from_here: bool
    ) -> User | Refused:
        """The user that a verified client certificate names, or why not."""
        return self._access.begin_certified(
            user, from_here, peer=address_of(peer), protocol=protocol
        )

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

    async def _verify(self, job: Job) -> None:
        """Tells those who wait whether the password fits; None if it could not be looked at."""
        ok = None
        try:
            loop = asyncio.get_running_loop()
            ok = await loop.run_in_executor(self._pool, Access.verify, job)
        except (MemoryError, RuntimeError, argon2.exceptions.HashingError) as error:
            log.error("cannot check a password: %r", error)
            self._access.abandon(job)
        else:
            self._access.settle(job, ok)
        finally:
            if not job.outcome.done():
                job.outcome.set_result(ok)


def limits_of(config: Config) -> Limits:
    """What the settings say about wrong passwords."""
    return Limits(
        failures_max=config.login_failures_max,
        address_failures_max=config.login_address_failures_max,
        longest_s=config.login_backoff_max,
        trusted_s=config.login_trusted_for,
    )
