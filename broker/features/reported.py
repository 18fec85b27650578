"""What the process `bridges` reports of one thing that it runs, a shovel or a link. Counts are kept
here over its restarts, and end with the broker."""

from __future__ import annotations

from typing import Any

from broker.kernel import clock
from broker.schema.control_schema import ShovelReport

HISTORY_KEPT = 20
COUNTS = ("moved", "moved_bytes", "refused", "dropped", "dead_lettered", "marked", "connects")


class Reported:
    """The last report of one generation, and the counts of all."""

    def __init__(self, vhost: str, name: str, generation: int) -> None:
        self.generation = generation
        self.counts = dict.fromkeys(COUNTS, 0)
        self.history: list[dict[str, Any]] = []
        self.report: ShovelReport
        self.told_of: dict[str, str] = {}
        """The user on whose behalf it runs, as the process got it."""
        self._vhost = vhost
        self._name = name
        self.begin()

    def begin(self, reason: str = "", generation: int | None = None) -> None:
        """Nothing is reported of this generation yet."""
        if generation is not None:
            self.generation = generation
        self.report = ShovelReport(
            vhost=self._vhost,
            name=self._name,
            generation=self.generation,
            state="starting",
            reason=reason,
            since=clock.now(),
        )

    def take(self, report: ShovelReport) -> None:
        """A report: counts are what came since the last one, the history is what is new."""
        for name in COUNTS:
            self.counts[name] += max(0, report.counts.get(name, 0))
        self.history = [*self.history, *report.history][-HISTORY_KEPT:]
        self.report = report
