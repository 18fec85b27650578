"""Attempts of a shovel or a link: when one fails the next follows, later and later."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from management.bridges.carrier import backoff
from management.bridges.ends import End, Ends
from management.bridges.pace import Step
from management.bridges.plan import Plan, ShovelFailed, shortened
from management.bridges.status import Status

log = logging.getLogger("leveret.bridges")

# As LavinMQ does: after this many failures in a row the delay grows, up to five minutes.
STEADY_TRIES = 10
DELAY_MOST_S = 300.0
STEADY_S = 60.0
"""An attempt that ran so long was none of the failures in a row."""
STOPPED_S = 60.0
"""What lost a right looks so often whether it has it again."""


class Attempts:
    """Calls `once` until it returns or is stopped, and tells the status why it failed. `what` it
    is, for the log; `delay_s`: seconds until the next attempt, 0 for none."""

    def __init__(
        self, what: str, status: Status, once: Callable[[], Awaitable[None]], delay_s: float
    ) -> None:
        self._what = what
        self._status = status
        self._once = once
        self._delay_s = delay_s
        self._task: asyncio.Task[None] | None = None

    def start(self, behind: Step | None = None) -> None:
        """Begins, once what it is to come behind is over."""
        self._task = asyncio.create_task(self._live(behind), name=self._what[:50])

    async def stop(self) -> None:
        """Ends them; what is not settled goes back to its queue."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _live(self, behind: Step | None) -> None:
        if behind is not None:
            await behind()
        failures = 0
        while True:
            self._status.put("starting")
            began = time.monotonic()
            try:
                await self._once()
            except ShovelFailed as error:
                failed = error
            except Exception as error:
                log.exception("%s", self._what)
                failed = ShovelFailed(f"{type(error).__name__}: {shortened(error)}")
            else:
                return
            failures = 1 if time.monotonic() - began > STEADY_S else failures + 1
            delay = self._delay(failed, failures)
            if not delay:
                self._status.put("stopped", failed.reason)
                return
            self._status.put("stopped" if failed.stops else "error", failed.reason, delay)
            await asyncio.sleep(delay)

    def _delay(self, failed: ShovelFailed, failures: int) -> float:
        """Seconds until the next try; 0 for none."""
        if failed.stops:
            return STOPPED_S
        first = self._delay_s
        if not first:
            return 0.0
        return backoff(first, max(DELAY_MOST_S, first), max(0, failures - STEADY_TRIES))


class Turns:
    """Several URIs of one end, of which the next is tried when one fails."""

    def __init__(self, uris: list[str], purpose: str) -> None:
        self._uris = uris
        self._purpose = purpose
        self._turn = 0

    def next(self) -> str:
        """One URI, and another one at the next call."""
        self._turn += 1
        return self._uris[(self._turn - 1) % len(self._uris)]

    @property
    def current(self) -> str:
        """The URI that `open` has connected to."""
        return self._uris[self._turn % len(self._uris)]

    async def open(self, ends: Ends, plan: Plan) -> End:
        """Connects to the first of the URIs that can be reached, beginning behind the last one
        that failed. Raises ShovelFailed."""
        reasons = []
        for _ in self._uris:
            try:
                return await ends.open(plan, self.current, self._purpose)
            except ShovelFailed as error:
                self._turn += 1
                reasons.append(error.reason)
                if error.stops and len(self._uris) == 1:
                    raise
        raise ShovelFailed(f"{self._purpose}: " + "; ".join(dict.fromkeys(reasons)))
