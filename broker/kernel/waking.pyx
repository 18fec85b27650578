# cython: language_level=3
"""Whether a sleep of the loop ends early, with the round that is being written meanwhile.

A publisher that waits for its confirms sends more when it has them sooner: a sleep that is longer
than the round costs it. For one that sends at a rate of its own that makes no difference, and to
begin the next round early only makes rounds small. Which of the two it is shows in what comes in a
second with and without: now and then both are tried in turn.
"""

cimport cython
from libc.stdint cimport uint64_t


cdef enum:
    WINDOW_NS = 10000000
    LONG_NS = 40000000           # a window in which the publisher has stopped
    WINDOWS = 8                  # of a trial, every second one with sleeps that end early
    KEPT = 100                   # windows behind a trial

# Sleeps end early if this many times as much comes with it.
cdef double WORTH = 1.06


@cython.final
cdef class Waking:
    """Asked before each sleep during a round; `frames` counts what comes all the time."""

    cpdef bint is_early(self, uint64_t now) noexcept:
        """Whether the sleep that begins now (monotonic ns) is over when the round is."""
        cdef uint64_t length = now - self.opened
        if length >= WINDOW_NS:
            if length >= LONG_NS:
                self.left = 1
            self.end_window(<double> self.frames / length)
            self.opened = now
            self.frames = 0
        return self.early

    cdef void end_window(self, double rate) noexcept:
        """`rate`: frames a nanosecond in it."""
        if self.left:
            self.left -= 1
            if self.left == 0:
                self.windows = 0
                self.whole_rate = self.early_rate = 0
                self.early = False
            return
        if self.early:
            self.early_rate += rate
        else:
            self.whole_rate += rate
        self.windows += 1
        if self.windows < WINDOWS:
            self.early = not self.early
        else:
            self.early = self.early_rate >= self.whole_rate * WORTH
            self.left = KEPT
