"""Python's garbage collector, kept out of the turns of the loop.

Left alone it walks over everything there is now and then: with 100,000 queues, whose objects are no
garbage, that takes 70 to 130 ms. Here only young objects are looked at as they come. What outlives
them is frozen, which costs nothing and looks at nothing, and a walk over all is left to a time when
nobody is served. At such a time the C library gives freed memory back to the system too: it keeps
all that lies below something still in use, after an hour of mixed load many times what is used.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import time
from collections.abc import Callable

log = logging.getLogger("leveret.broker")

# Young objects are few enough to be looked at in less than a millisecond.
YOUNG, MIDDLE, NEVER = 700, 3, 1_000_000_000
# Collections of the middle generation after which what is left of them is frozen.
FREEZE_AFTER = 4
# A broker that took less of a core than this, so many seconds in a row, serves hardly anybody.
IDLE_SHARE, IDLE_S = 0.03, 5
# Between two walks: so many times the CPU time of the last one, within these bounds. What died in a
# circle waits for a walk, so a small broker, whose walk takes milliseconds, need not wait for long.
WALK_SHARE, WALK_SOON_S, WALK_EVERY_S = 5_000, 30, 600
# A broker that is never idle: cycles that died frozen would pile up.
WALK_AT_LAST_S = 6 * 3600
# The allocator's lists are locked meanwhile, and pages given back are taken again by the next load.
GIVE_BACK_EVERY_S = 10


class Garbage:
    """`start` once everything is recovered, `tick` once a second. `give_back` is called when the
    broker is idle after work, and need not be done when it returns."""

    def __init__(self, give_back: Callable[[], object]) -> None:
        self._give_back = give_back
        self._given_at = 0.0
        self._has_worked = True  # the start took memory too
        self._walked_at = 0.0
        self._walk_after = 0.0
        self._busy_s = 0.0
        self._idle_for = 0
        self._is_unchecked = False

    def start(self, now: float) -> None:
        """Nothing of what is there now is garbage. `now`: monotonic seconds."""
        began = time.thread_time()
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._walked(now, time.thread_time() - began)
        self._given_at = now
        self._busy_s = time.process_time()

    def tick(self, now: float) -> None:
        """Freezes what grew old; when the broker is idle, walks over all if something was frozen
        since, and has freed memory given back if it worked since."""
        if gc.get_count()[2] >= FREEZE_AFTER:
            gc.freeze()
            self._is_unchecked = True
        busy_s = time.process_time()
        self._idle_for = self._idle_for + 1 if busy_s - self._busy_s < IDLE_SHARE else 0
        self._busy_s = busy_s
        self._has_worked = self._has_worked or not self._idle_for
        is_idle = self._idle_for >= IDLE_S
        since = now - self._walked_at
        if self._is_unchecked and (
            since >= WALK_AT_LAST_S or (since >= self._walk_after and is_idle)
        ):
            self._walk(now)
        if is_idle and self._has_worked and now - self._given_at >= GIVE_BACK_EVERY_S:
            self._has_worked = False
            self._given_at = now
            self._give_back()

    def _walk(self, now: float) -> None:
        began = time.thread_time()
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        self._is_unchecked = False
        took = time.thread_time() - began
        self._walked(now, took)
        log.debug("%d objects were garbage, found in %.0f ms", found, took * 1000)

    def _walked(self, now: float, took: float) -> None:
        self._walked_at = now
        self._walk_after = min(WALK_EVERY_S, max(WALK_SOON_S, took * WALK_SHARE))


def give_memory_back() -> None:
    """Asks the C library for what it keeps of freed memory; without that a memory alarm may never
    clear. Not for the loop's thread: pages are given back one by one. Does nothing where the
    library has no such call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
