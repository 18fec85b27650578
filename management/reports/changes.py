"""Changes of tariffs and plans that people ask for, one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from . import plans, tariff
from .catalog import REPORTS
from .client import Request
from .ledger import Ledger
from .placement import Placement
from .runs import RunNotFound

log = logging.getLogger("management.reports.process")

PATIENCE = 3.0
"""Seconds that the broker may be away: the person who asked waits (`client.TIMEOUT`)."""

VERBS = ("tariff", "remove tariff", "plan", "remove plan")


class Changes:
    """The tariffs and plans below the reports' directory, which are changed through `placement`."""

    def __init__(self, directory: Path, placement: Placement) -> None:
        self._directory = directory
        self._placement = placement
        self._one_at_a_time = asyncio.Lock()

    async def make(self, request: Request) -> None:
        """Carry out one of VERBS; it is on disk then. Raises OSError, RunNotFound, and ValueError
        for what is wrong."""
        given, user = request.parameters, request.asked_by
        async with self._one_at_a_time:
            if request.verb == "tariff":
                await asyncio.to_thread(self.set_tariff, given, user)
            elif request.verb == "remove tariff":
                await asyncio.to_thread(self.remove_tariff, given.get("since", ""), user)
            elif request.verb == "plan":
                await asyncio.to_thread(self.set_plan, given, user)
            else:
                name = given.get("name", "")
                await asyncio.to_thread(self.remove_plan, request.report, name, user)

    def set_tariff(self, given: Mapping[str, str], asked_by: str | None) -> None:
        """Put a tariff in force from its month on, in place of one of the same month."""
        new = tariff.checked(given)
        self._check_open(new.since)
        kept = [one for one in tariff.read(self._directory) if one.since != new.since]
        in_order = sorted([*kept, new], key=lambda one: one.since)
        tariff.store(self._directory, in_order, self._placement)
        log.info("tariff from %s set by %r: %s", new.since, asked_by, new)

    def remove_tariff(self, since: str, asked_by: str | None) -> None:
        """Take a tariff away."""
        since = f"{tariff.month_of(since):%Y-%m}"
        found = tariff.read(self._directory)
        kept = [one for one in found if one.since != since]
        if len(kept) == len(found):
            raise RunNotFound(f"there is no tariff from {since}")
        self._check_open(since)
        tariff.store(self._directory, kept, self._placement)
        log.info("tariff from %s removed by %r", since, asked_by)

    def _check_open(self, since: str) -> None:
        newest = Ledger(self._directory).newest()
        if since <= newest:
            raise ValueError(
                f"{newest} is closed and does not change: a tariff can begin in a later month"
            )

    def set_plan(self, given: Mapping[str, str], asked_by: str | None) -> None:
        """Put a plan in place of one of the same report and name."""
        values = dict(given)
        report, name = values.pop("report", ""), values.pop("name", "")
        if report not in REPORTS:
            raise RunNotFound(f"there is no report {report!r}")
        new = plans.checked(report, name, values)
        kept = [
            one for one in plans.read(self._directory) if (one.report, one.name) != (report, name)
        ]
        plans.store(self._directory, [*kept, new], self._placement)
        log.info("plan %r of %s set by %r", name, report, asked_by)

    def remove_plan(self, report: str, name: str, asked_by: str | None) -> None:
        """Take a plan away."""
        found = plans.read(self._directory)
        kept = [one for one in found if (one.report, one.name) != (report, name)]
        if len(kept) == len(found):
            raise RunNotFound(f"report {report} has no plan {name!r}")
        plans.store(self._directory, kept, self._placement)
        log.info("plan %r of %s removed by %r", name, report, asked_by)
