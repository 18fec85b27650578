"""What is reported of one shovel: its state in words, counts since the last report, its rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from management.bridges.plan import Plan

RATE_S = 5.0
"""Seconds that the rate is an average of."""
HISTORY_MOST = 20
REPORTED_AT_ONCE = 200
"""Reports in one request: a turn of the broker takes no more of them."""


class Status:
    """State and counts. Times are ms since 1970."""

    def __init__(
        self,
        plan: Plan,
        state: str = "starting",
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.state = state
        self.reason = ""
        self.last_error = ""
        self.next_try: int | None = None
        self.src_uri = self.dest_uri = ""
        self.in_flight = self.held = 0
        self.remaining: int | None = None
        """Messages until it has moved what it should; None where there is no end."""
        self.is_over = False
        self._clock = clock
        self._monotonic = monotonic
        self.since = self._now()
        self._counts: dict[str, int] = {}
        self._history: list[dict[str, Any]] = []
        self._moved = 0
        self._samples: list[tuple[float, int]] = []
        self._sent: dict[str, Any] | None = None

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def put(self, state: str, reason: str = "", next_in: float | None = None) -> None:
        """Another state; what is not the same as before is part of the history."""
        self.next_try = None if next_in is None else self._now() + int(next_in * 1000)
        if (state, reason) == (self.state, self.reason):
            return
        self.state, self.reason, self.since = state, reason, self._now()
        if state in ("error", "stopped"):
            self.last_error = reason
        event = {"at": self.since, "state": state, "reason": reason}
        self._history = [*self._history, event][-HISTORY_MOST:]

    def count(self, name: str, more: int) -> None:
        """Adds to a count."""
        if more:
            self._counts[name] = self._counts.get(name, 0) + more
            if name == "moved":
                self._moved += more

    def _rate(self) -> float:
        now = self._monotonic()
        self._samples.append((now, self._moved))
        while len(self._samples) > 2 and self._samples[1][0] <= now - RATE_S:
            self._samples.pop(0)
        (first, moved), (last, now_moved) = self._samples[0], self._samples[-1]
        return round((now_moved - moved) / (last - first), 1) if last > first else 0.0

    def report(self) -> dict[str, Any] | None:
        """What is new since the last report; None if nothing is."""
        level = {
            "vhost": self.plan.vhost,
            "name": self.plan.name,
            "generation": self.plan.generation,
            "state": self.state,
            "reason": self.reason,
            "since": self.since,
            "next_try": self.next_try,
            "last_error": self.last_error,
            "src_uri": self.src_uri,
            "dest_uri": self.dest_uri,
            "in_flight": self.in_flight,
            "held": self.held,
            "remaining": self.remaining,
            "rate": self._rate(),
            "is_over": self.is_over,
        }
        if level == self._sent and not self._counts and not self._history:
            return None
        self._sent = level
        counts, self._counts = self._counts, {}
        history, self._history = self._history, []
        return {**level, "counts": counts, "history": history}

    def forget_sent(self) -> None:
        """The broker was away: everything is to be said again."""
        self._sent = None
