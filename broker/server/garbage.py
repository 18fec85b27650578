"""Python's garbage collector, kept out of the turns of the loop.

Left alone it walks over everything there is now and then: with 100,000 queues, whose objects are no
garbage, that takes 70 to 130 ms. Here only young objects are looked at as they come. What outlives
them is frozen, which costs nothing and looks at nothing, and a walk over all is left to a time when
nobody is served.
"""

from __future__ import annotations

import gc
import logging
import time

log = logging.getLogger("leveret.broker")

# Young objects are few enough to be looked at in less than a millisecond.
YOUNG, MIDDLE, NEVER = 700, 3, 1_000_000_000
# Collections of the middle generation after which what is left of them is frozen.
FREEZE_AFTER = 4
# A broker that took less of a core than this, so many seconds in a row, serves hardly anybody.
IDLE_SHARE, IDLE_S = 0.03, 5
WALK_EVERY_S = 600
# A broker that is never idle: cycles that died frozen would pile up.
WALK_AT_LAST_S = 6 * 3600


class Garbage:
    """`start` once everything is recovered, `tick` once a second."""

    def __init__(self) -> None:
        self._walked_at = 0.0
        self._busy_s = 0.0
        self._idle_for = 0
        self._is_unchecked = False

    def start(self, now: float) -> None:
        """Nothing of what is there now is garbage. `now`: monotonic seconds."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._walked_at = now
        self._busy_s = time.process_time()

    def tick(self, now: float) -> None:
        """Freezes what grew old; walks over all when the broker is idle and something was frozen
        since."""
        if gc.get_count()[2] >= FREEZE_AFTER:
            gc.freeze()
            self._is_unchecked = True
        busy_s = time.process_time()
        self._idle_for = self._idle_for + 1 if busy_s - self._busy_s < IDLE_SHARE else 0
        self._busy_s = busy_s
        since = now - self._walked_at
        if self._is_unchecked and (
            since >= WALK_AT_LAST_S or (since >= WALK_EVERY_S and self._idle_for >= IDLE_S)
        ):
            self._walk(now)

    def _walk(self, now: float) -> None:
        began = time.perf_counter()
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        self._is_unchecked = False
        self._walked_at = now
        took_ms = (time.perf_counter() - began) * 1000
        log.debug("%d objects were garbage, found in %.0f ms", found, took_ms)
