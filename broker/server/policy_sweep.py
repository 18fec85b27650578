"""Brings changed policies to the queues and exchanges of a vhost, a slice in each turn."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.server.pace import Pace
from broker.settings.bounds import POLICY_WAIT_S

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.vhosts.vhost import VHost

log = logging.getLogger("leveret.policies")


class PolicySweep:
    """One sweep at a time in each vhost, those of several vhosts in turn. A change during a sweep
    begins another one after it, so that every object is looked at again; many changes begin only
    one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def begin(self, vhost: str) -> None:
        """Policies of the vhost have changed."""
        if vhost in self._tasks:
            self._again.add(vhost)
        else:
            self._tasks[vhost] = asyncio.get_running_loop().create_task(
                self._run(vhost), name="policy sweep"
            )

    async def over(self, vhosts: Iterable[str], wait_s: float = POLICY_WAIT_S) -> bool:
        """Whether every change of these vhosts' policies so far has reached all that it concerns:
        waits for that, but not longer than `wait_s`. For very many queues and thousands of
        policies it may take minutes."""
        tasks = {self._tasks[vhost] for vhost in vhosts if vhost in self._tasks}
        if not tasks:
            return True
        _, pending = await asyncio.wait(tasks, timeout=wait_s)
        return not pending

    async def close(self) -> None:
        """Ends in the middle; the next start applies what is left."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str) -> None:
        try:
            while True:
                self._again.discard(name)
                vhost = self._broker.vhosts.get(name)
                if vhost is not None:
                    await self._apply(vhost)
                if name not in self._again:
                    return
        finally:
            del self._tasks[name]

    async def _apply(self, vhost: VHost) -> None:
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
