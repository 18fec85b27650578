"""Watches the system's clock beside the broker's own.

The broker's clock is the wall's time at its start and the monotonic clock since
(`broker.kernel.clock`), so that a jump of the system's clock ends no deadline early and holds none
up. A jump is logged, though: until the next start the two show different times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.kernel import clock

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.clock")

LOOK_S = 1.0
DRIFT_MS = 1000


class ClockWatch:
    """Both clocks are functions that return milliseconds since 1970."""

    def __init__(
        self,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        own_ms: Callable[[], int] = clock.now,
    ) -> None:
        self._wall_ms = wall_ms
        self._own_ms = own_ms
        self.apart_ms = 0
        """How far the system's clock was ahead of the broker's when it was last said."""

    def watch(self, broker: Broker) -> None:
        """Looks once a second from now on."""
        self.look()
        broker.timers.later(LOOK_S, lambda: self.watch(broker))

    def look(self) -> None:
        """Says so if the clocks moved apart by more than a second since it was last said."""
        apart = self._wall_ms() - self._own_ms()
        if abs(apart - self.apart_ms) <= DRIFT_MS:
            return
        log.warning(
            "the system's clock moved by %+.1f s against the monotonic clock; it is now %+.1f s "
            "beside the broker's, on which all deadlines and timestamps rest until the next start",
            (apart - self.apart_ms) / 1000,
            apart / 1000,
        )
        self.apart_ms = apart
