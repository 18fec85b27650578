"""How long something took: the newest times, and a histogram of all since the start."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram, seconds."""


class Waits(deque[float]):
    """The newest times, in seconds; `append` adds one, once for each round and not for each
    message."""

    def __init__(self, newest: int = 1024) -> None:
        super().__init__(maxlen=newest)
        self.counts = [0] * (len(BOUNDS) + 1)
        """How many were at most as long as each bound, but longer than the one before; the last:
        longer than all."""
        self.total = 0.0
        """The sum of all, seconds."""

    def append(self, seconds: float) -> None:
        super().append(seconds)
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds
