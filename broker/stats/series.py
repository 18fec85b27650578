"""Numbers over time in rings of fixed size: what charts and RabbitMQ's `samples` are made of.

Counters are kept as they stand, not as rates, so that a rate over any stretch is one subtraction
and a coarser ring needs no averaging. Times are milliseconds since 1970.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from broker.stats.ring import Ring

GLOBAL_TIERS = ((1_000, 900), (10_000, 360))
"""Step in ms and number of steps: a quarter of an hour, an hour. What is older is on disk
(`broker.stats.history`)."""

VHOST_TIERS = ((1_000, 300), (10_000, 360))
OBJECT_TIERS = ((10_000, 360),)


class Sample(NamedTuple):
    """The value of a series at a time."""

    timestamp: int
    sample: float


@functools.cache
def _shape(
    counters: tuple[str, ...], levels: tuple[str, ...]
) -> tuple[frozenset[str], tuple[str, ...], dict[str, int]]:
    """The counters, all names, and the column of each: the same for all series of a kind."""
    names = (*counters, *levels)
    return frozenset(counters), names, {name: place for place, name in enumerate(names)}


class Series:
    """Several named series that are added to together, kept in some rings of rising step."""

    __slots__ = ("_places", "counters", "names", "rings")

    def __init__(
        self,
        counters: Sequence[str],
        levels: Sequence[str],
        tiers: Iterable[tuple[int, int]],
    ) -> None:
        self.counters, self.names, self._places = _shape(tuple(counters), tuple(levels))
        self.rings = [Ring(len(self.names), step, size) for step, size in tiers]
        """The finest first."""

    @property
    def first(self) -> int:
        """The oldest time that is known, ms since 1970; 0 without any."""
        return min((ring.first for ring in self.rings), default=0)

    def add(self, at: int, values: Sequence[float]) -> None:
        """Adds a row, its values in the order of `names`. Times must not go back."""
        for ring in self.rings:
            ring.add(at, values)

    def history(
        self, from_ms: int, to_ms: int, wanted: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """`{step_ms, times, series}` between two times, from the finest ring that reaches back.

        Counters become rates per second over each step; nil is a gap.
        """
        ring = next((one for one in self.rings if one.first <= from_ms), None)
        if ring is None:
            # None reaches so far back; the one that knows the longest past is as good as any.
            ring = min(self.rings, key=lambda one: (one.first, one.step))
        times = ring.times_in_order()
        low = bisect_right(times, from_ms - 1)
        high = bisect_right(times, to_ms)
        names = [name for name in (wanted or self.names) if name in self._places]
        series: dict[str, list[float | None]] = {}
        for name in names:
            values = ring.column(self._places[name])
            if name not in self.counters:
                series[name] = list(values[low:high])
                continue
            rates: list[float | None] = []
            for index in range(low, high):
                passed = times[index] - times[index - 1] if index else 0
                if not 0 < passed <= 2.5 * ring.step:
                    rates.append(None)
                else:
                    rates.append(round((values[index] - values[index - 1]) * 1000 / passed, 3))
            series[name] = rates
        return {"step_ms": ring.step, "times": list(times[low:high]), "series": series}

    def samples(self, name: str, now: int, age_s: int, increment_s: int) -> list[Sample]:
        """Values at every increment back from now, newest first, as RabbitMQ's API shows them."""
        if name not in self._places:
            return []
        from_ms = now - age_s * 1000
        # A ring that is not full knows all there ever was.
        ring = next(
            (one for one in self.rings if one.first <= from_ms or len(one) < one.size),
            self.rings[-1],
        )
        times = ring.times_in_order()
        values = ring.column(self._places[name])
        newest = now - now % (increment_s * 1000)
        found = []
        for at in range(newest, newest - age_s * 1000 - 1, -increment_s * 1000):
            index = bisect_right(times, at) - 1
            found.append(Sample(at, values[index] if index >= 0 else 0.0))
        return found


def sample_details(rate: float, samples: Sequence[Sample]) -> dict[str, object]:
    """RabbitMQ's `X_details`: the rate, and with samples also `samples`, `avg` and `avg_rate`."""
    details: dict[str, object] = {"rate": rate}
    if samples:
        newest, oldest = samples[0], samples[-1]
        seconds = (newest.timestamp - oldest.timestamp) / 1000
        change = newest.sample - oldest.sample
        details["samples"] = [
            {"sample": _plain(one.sample), "timestamp": one.timestamp} for one in samples
        ]
        details["avg_rate"] = change / seconds if seconds else 0.0
        details["avg"] = sum(one.sample for one in samples) / len(samples)
    return details


def _plain(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value
