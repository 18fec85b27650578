"""Brings changed policies to the queues and exchanges of a vhost, a slice in each turn."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from broker.server.pace import Pace

log = logging.getLogger("leveret.policies")


class PolicySweep:
    """One sweep at a time. A change during a sweep begins another one after it, so that every
    object is looked at again; many changes begin only one."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._waiting: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, vhost: str) -> None:
        """Policies of the vhost have changed."""
        self._waiting[vhost] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="policy sweep")

    async def over(self) -> None:
        """Returns when every change so far has reached all that it concerns."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Ends in the middle; the next start applies what is left."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._waiting:
                name = next(iter(self._waiting))
                del self._waiting[name]
                vhost = self._broker.vhosts.get(name)
                if vhost is not None:
                    await self._apply(vhost)
        finally:
            self._task = None

    async def _apply(self, vhost: Any) -> None:
        began = time.perf_counter()
        pace = Pace()
        count = 0
        try:
            for _ in vhost.apply_policies():
                count += 1
                await pace()
        except Exception:
            log.exception("policies of vhost '%s' did not reach everything", vhost.name)
            return
        log.info(
            "policies of vhost '%s': %d queues and exchanges looked at in %.0f ms",
            vhost.name,
            count,
            (time.perf_counter() - began) * 1000,
        )
