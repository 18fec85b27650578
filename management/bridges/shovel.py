"""One shovel through its attempts: open both ends, carry, and when that ends try again."""

from __future__ import annotations

import dataclasses
from typing import Any

from broker.settings.config import Config
from management.bridges.amqp import AmqpCarrier, close
from management.bridges.attempts import Attempts, Turns
from management.bridges.ends import End, Ends
from management.bridges.pace import Step
from management.bridges.place import Place
from management.bridges.plan import Plan
from management.bridges.source import Source
from management.bridges.status import Status


class Shovel:
    """Runs until it is stopped, or has moved what it should."""

    def __init__(
        self, plan: Plan, ends: Ends, config: Config, status: Status, place: Place
    ) -> None:
        self.plan = plan
        self._place = place
        self.status = status
        self._ends = ends
        self._config = config
        self._source = Turns(plan.uris("src-uri"), "source")
        self._destination = Turns(plan.uris("dest-uri"), "destination")
        what = f"shovel '{plan.name}' in vhost '{plan.vhost}'"
        self._attempts = Attempts(what, status, self._once, float(plan.given["reconnect-delay"]))

    def start(self, behind: Step | None = None) -> None:
        """Begins, once what it is to come behind is over."""
        self._attempts.start(behind)

    def follow(self, order: dict[str, Any]) -> None:
        """Takes over what an order says of its owner; the next attempt goes by it."""
        self.plan = dataclasses.replace(self.plan, on_behalf_of=order["on_behalf_of"])

    async def stop(self) -> None:
        """Ends it; what is not settled goes back to its queue."""
        await self._attempts.stop()

    async def _once(self) -> None:
        """One attempt. Raises ShovelFailed."""
        plan, status = self.plan, self.status
        opened: list[End] = []
        status.in_flight = status.held = 0
        try:
            source_end = await self._source.open(self._ends, plan)
            opened.append(source_end)
            status.src_uri = source_end.shown
            source = Source(plan, source_end, self._ends, self._place)
            if plan.is_web:
                # Only where it is needed: it takes memory.
                from management.bridges.web import WebCarrier, located

                endpoint = await located(self._destination.next(), self._ends, plan)
                status.dest_uri = endpoint.shown
                carrier: AmqpCarrier | WebCarrier = WebCarrier(
                    plan, source, endpoint, status, self._config.bridges_memory
                )
            else:
                end = await self._destination.open(self._ends, plan)
                opened.append(end)
                status.dest_uri = end.shown
                carrier = AmqpCarrier(plan, source, end, status, self._config.bridges_memory)
            await source.prepare()
            status.count("connects", 1)
            await carrier.run()
        finally:
            await close(*opened)
        status.put("terminated", "all messages are moved")
        status.is_over = True
