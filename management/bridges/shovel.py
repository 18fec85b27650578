"""One shovel through its attempts: open both ends, carry, and when that ends try again."""

from __future__ import annotations

import asyncio
import logging
import time

from broker.settings.config import Config
from management.bridges.amqp import AmqpCarrier, close
from management.bridges.carrier import backoff, shortened
from management.bridges.ends import End, Ends
from management.bridges.plan import Plan, ShovelFailed
from management.bridges.source import Source
from management.bridges.status import Status

log = logging.getLogger("leveret.bridges")

# As LavinMQ does: after this many failures in a row the delay grows, up to five minutes.
STEADY_TRIES = 10
DELAY_MOST_S = 300.0
STEADY_S = 60.0
"""An attempt that ran so long was none of the failures in a row."""
STOPPED_S = 60.0
"""A shovel that lost a right looks so often whether it has it again."""


class Shovel:
    """Runs until it is stopped, or has moved what it should."""

    def __init__(self, plan: Plan, ends: Ends, config: Config, status: Status) -> None:
        self.plan = plan
        self.status = status
        self._ends = ends
        self._config = config
        self._turn = {"src-uri": 0, "dest-uri": 0}
        """Which of several URIs is tried first."""
        self._connects = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._live(), name=f"shovel {self.plan.name[:40]}")

    async def stop(self) -> None:
        """Ends it; what is not settled goes back to its queue."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _live(self) -> None:
        failures = 0
        while True:
            self.status.put("starting")
            began = time.monotonic()
            try:
                await self._once()
            except ShovelFailed as error:
                failed = error
            except Exception as error:
                log.exception("shovel '%s' in vhost '%s'", self.plan.name, self.plan.vhost)
                failed = ShovelFailed(f"{type(error).__name__}: {shortened(error)}")
            else:
                self.status.put("terminated", "all messages are moved")
                self.status.is_over = True
                return
            failures = 1 if time.monotonic() - began > STEADY_S else failures + 1
            delay = self._delay(failed, failures)
            if not delay:
                self.status.put("stopped", failed.reason)
                return
            self.status.put("stopped" if failed.stops else "error", failed.reason, delay)
            await asyncio.sleep(delay)

    def _delay(self, failed: ShovelFailed, failures: int) -> float:
        """Seconds until the next try; 0 for none."""
        if failed.stops:
            return STOPPED_S
        first = float(self.plan.given["reconnect-delay"])
        if not first:
            return 0.0
        return backoff(first, max(DELAY_MOST_S, first), max(0, failures - STEADY_TRIES))

    async def _once(self) -> None:
        """One attempt. Raises ShovelFailed."""
        plan, status = self.plan, self.status
        opened: list[End] = []
        status.in_flight = status.held = 0
        try:
            source_end = await self._open("src-uri", "source")
            opened.append(source_end)
            status.src_uri = source_end.shown
            source = Source(plan, source_end)
            if plan.is_web:
                # Only where it is needed: it takes memory.
                from management.bridges.web import WebCarrier, located

                endpoint = await located(self._next_uri("dest-uri"), self._ends.addresses)
                status.dest_uri = endpoint.shown
                carrier: AmqpCarrier | WebCarrier = WebCarrier(
                    plan, source, endpoint, status, self._config.bridges_memory
                )
            else:
                end = await self._open("dest-uri", "destination")
                opened.append(end)
                status.dest_uri = end.shown
                carrier = AmqpCarrier(plan, source, end, status, self._config.bridges_memory)
            await source.prepare()
            status.count("connects", 1)
            await carrier.run()
        finally:
            await close(*opened)

    def _next_uri(self, key: str) -> str:
        uris = self.plan.uris(key)
        self._turn[key] += 1
        return uris[(self._turn[key] - 1) % len(uris)]

    async def _open(self, key: str, purpose: str) -> End:
        """Connects to the first of the URIs that can be reached, beginning behind the last one
        that failed. Raises ShovelFailed."""
        uris = self.plan.uris(key)
        reasons = []
        for _ in uris:
            uri = uris[self._turn[key] % len(uris)]
            try:
                return await self._ends.open(self.plan, uri, purpose)
            except ShovelFailed as error:
                self._turn[key] += 1
                reasons.append(error.reason)
                if error.stops and len(uris) == 1:
                    raise
        raise ShovelFailed(f"{purpose}: " + "; ".join(dict.fromkeys(reasons)))
