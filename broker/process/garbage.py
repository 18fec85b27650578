"""Python's garbage collector, kept out of the turns of a loop: for the broker and the web process.

Left alone it walks over everything there is now and then, and a walk cannot be sliced: the modules
of a broker take 25 ms, 100,000 queues 100 ms more. So what is there at the start is frozen: walks
do not look at it. Young objects are collected as they come (Python counts how many more there are;
while as many old ones go, the loop itself calls `walk_over_young`), and what outlives them together
with all that is younger than the start, until such a walk takes `LONG_WALK_S`: then what it kept is
frozen as well. Objects that die frozen are given back by their reference counts, unless they hold
each other in a circle. Connections, logins, requests and their like do not
(tests/hostile/test_circles.py), so a walk over all finds next to nothing, and is made only when
memory says otherwise: see `tick`.

A process that is idle after work walks over what is younger than the start, and has the C library
give freed memory back to the system: it keeps all that lies below something still in use, after an
hour of mixed load many times what is used.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Callable

log = logging.getLogger("leveret.garbage")

YOUNG, MIDDLE, OLD = 350, 1, 1
"""Thresholds of `gc.set_threshold`: at most 350 x 2 x 2 objects come to those a walk has kept."""
LONG_WALK_S, LONG_IN_ANY_CASE_S = 0.002, 0.003
KEPT_MIN = 2_500
"""The objects that a collection kept are frozen if it took this CPU time and kept this number of
objects, so that the next one is short. Fewer can take long, too, as a list of a million does: then
it has to be longer, and not because of what it gave back. What is frozen and then refers to itself
stays, and on a busy machine every collection takes 2 ms."""
YOUNG_EVERY_NS = 4_000_000
"""After so much work a loop calls `walk_over_young`. Python starts a walk when there are `YOUNG`
objects more, not when as many have come: where each new one takes the place of an old one, as with
messages of headers, 300,000 came between two walks, and the next took 24 ms."""
YOUNG_WALKS_S, MIDDLE_WALKS_S = 0.0005, 0.0004
"""What outlived young walks of so much CPU time together is walked over next, with the young; and
what outlived those, with all that is younger than the start, sooner: the caches hold less of it."""
LOOK_EVERY_S = 60.0
# A process that used less of a core than this share, for this number of seconds, is idle.
IDLE_SHARE, IDLE_S = 0.03, 5
# The allocator's lists are locked meanwhile, and pages given back are taken again by the next load.
GIVE_BACK_EVERY_S = 10
QUIET_GROWTH = 250_000
"""Blocks of memory (about 20 MB) more than after the last walk over all, for which another is worth
while when no client is connected."""
GROWTH = 2_000_000
"""The same while clients are connected and memory is short: all wait for it, a second for each ten
million."""


def release(transport: object) -> None:
    """Takes from one of asyncio's transports the methods of its own that it keeps: each closed
    connection would be garbage in a circle. To be called when the connection is lost, after which
    the transport calls neither."""
    kept = getattr(transport, "__dict__", {})
    kept.pop("_read_ready_cb", None)
    kept.pop("_write_ready", None)


class Garbage:
    """`start` once everything is there, `walk_over_young` every `YOUNG_EVERY_NS` of a loop's
    work, `tick` once a second, `stop` at the end.

    `give_back` is called when the process is idle after work, and need not be done when it returns.
    `clock` gives CPU seconds of the thread; `blocks` how many blocks of memory objects have."""

    def __init__(
        self,
        give_back: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.thread_time,
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self._clock = clock
        self._count_blocks = blocks
        self._blocks = 0
        self._looked_at = 0.0
        self._began = 0.0
        self._young_walks_s = self._middle_walks_s = 0.0
        self._is_unchecked = False
        self._thresholds = gc.get_threshold()
        self._give_back = give_back
        self._given_at = 0.0
        self._has_worked = True  # the start took memory too
        self._busy_s = 0.0
        self._idle_for = 0

    def start(self, now: float) -> None:
        """Freezes what is there now. `now`: monotonic seconds."""
        self._walk_over_the_rest()
        self._looked_at = self._given_at = now
        self._busy_s = time.process_time()
        gc.set_threshold(YOUNG, MIDDLE, OLD)
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Leaves the collector as it was."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)
            gc.set_threshold(*self._thresholds)
            gc.unfreeze()

    def walk_over_young(self) -> None:
        """Collects what has come since the last walk. How long walks took says how many objects
        they have kept for the older generation, and so when that has its turn."""
        if not gc.isenabled():
            return
        generation = 0
        if self._middle_walks_s >= MIDDLE_WALKS_S:
            self._young_walks_s = self._middle_walks_s = 0.0
            generation = 2
        elif self._young_walks_s >= YOUNG_WALKS_S:
            self._young_walks_s = 0.0
            generation = 1
        began = self._clock()
        gc.collect(generation)
        took_s = self._clock() - began
        if generation == 0:
            self._young_walks_s += took_s
        elif generation == 1:
            self._middle_walks_s += took_s

    def _note(self, phase: str, about: dict[str, int]) -> None:
        """Called by the collector at both ends of a walk."""
        if about["generation"] < 2:
            return
        if phase == "start":
            self._began = self._clock()
        elif self._is_long(self._clock() - self._began, about["collected"]):
            gc.freeze()
            self._is_unchecked = True

    @staticmethod
    def _is_long(took_s: float, collected: int) -> bool:
        """Whether what the walk kept made it long."""
        if took_s > LONG_IN_ANY_CASE_S and collected < KEPT_MIN:
            return True
        return took_s > LONG_WALK_S and len(gc.get_objects(generation=2)) >= KEPT_MIN

    def tick(self, now: float, is_quiet: bool, is_short: bool = False) -> None:
        """Walks over all if something was frozen since, and what objects hold has grown by
        `QUIET_GROWTH` while `is_quiet` (no client is connected), or by `GROWTH` while memory
        `is_short`: one client's million bindings must not make the others wait for a walk over
        them. When it is idle after work, what died young is collected and memory given back."""
        self._rest(now)
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        if not self._is_unchecked or not (is_quiet or is_short):
            return
        before, had = self._count_blocks(), self._blocks
        if before - had >= (QUIET_GROWTH if is_quiet else GROWTH):
            began = self._clock()
            found = self._walk_over_all()
            took_ms = (self._clock() - began) * 1000
            log.info(
                "objects held %d blocks of memory, %d after the last walk over all: "
                "%d were garbage in circles, found in %.0f ms",
                before,
                had,
                found,
                took_ms,
            )

    def _rest(self, now: float) -> None:
        busy_s = time.process_time()
        self._idle_for = self._idle_for + 1 if busy_s - self._busy_s < IDLE_SHARE else 0
        self._busy_s = busy_s
        self._has_worked = self._has_worked or not self._idle_for
        is_idle = self._idle_for >= IDLE_S
        if is_idle and self._has_worked and now - self._given_at >= GIVE_BACK_EVERY_S:
            self._has_worked = False
            self._given_at = now
            if gc.isenabled():
                gc.collect()  # short: what is many is frozen
            self._give_back()

    def _walk_over_all(self) -> int:
        """Returns how many objects were garbage."""
        gc.unfreeze()
        return self._walk_over_the_rest()

    def _walk_over_the_rest(self) -> int:
        """The same for all that is not frozen."""
        found = gc.collect()
        gc.freeze()
        # Python waits with the next walk until a quarter of what the last one kept has come to it:
        # this one keeps nothing.
        gc.collect()
        self._is_unchecked = False
        self._blocks = self._count_blocks()
        return found
