# cython: language_level=3
"""One timer for everything that happens later: expiry, heartbeats, handshakes, sweeps.

Deadlines fall into slots; one timer of the loop waits for the earliest slot. Setting and cancelling
cost a dictionary entry each, so that a hundred thousand of them are nothing special. A slot is a
millisecond for what has to be in time, as a message's expiry, and ten or more for the rest, so that
many connections' heartbeats wake the loop together: 10,000 of them eight times a second.
"""

import heapq
import logging
import time

from broker.kernel.through import long_list

log = logging.getLogger("leveret.timers")

SLOT_S = 0.001
TURN_S = 0.001
"""The loop is left to others when callbacks that are due have taken this long."""

cdef enum:
    SLOTS_A_SECOND = 1000
    COARSE_SLOTS = 10
    COARSEST_SLOTS = 128
    FINE_UNTIL_SLOTS = 2048      # a time from this one on is rounded up by up to a 128th of it
    ROUNDED_BITS = 7


cdef class Timer:
    """A callback to come."""

    cdef object callback

    def cancel(self):
        """Takes it back; harmless when it has fired."""
        self.callback = None


cdef class TimingWheel:
    """Timers on the loop's monotonic clock; none is set before `start`."""

    cdef object _loop
    cdef object _now                 # the loop's time, in seconds
    cdef dict _slots                 # by number: the Timers of each
    cdef list _order                 # a heap of those numbers
    cdef list _due                   # of the slot that fires, those that are left, the next last
    cdef object _handle

    def __cinit__(self):
        self._slots = {}
        self._order = long_list()
        self._due = []

    def start(self, loop):
        """From now on timers may be set."""
        self._loop = loop
        self._now = loop.time

    def later(self, double seconds, callback):
        """Calls `callback()` no earlier than `seconds` from now, and up to 10 ms later, or
        up to 1 % later and 128 ms at most."""
        cdef long slot = self._slot_in(seconds)
        cdef long ahead = <long> (seconds * SLOTS_A_SECOND)
        cdef long coarse = COARSE_SLOTS
        if ahead >= FINE_UNTIL_SLOTS:
            # A power of two, so that slots of all sizes coincide.
            coarse = 1
            while coarse < COARSEST_SLOTS and 2 * coarse <= ahead >> ROUNDED_BITS:
                coarse *= 2
        return self._enter((slot + coarse - 1) // coarse * coarse, callback)

    def punctual(self, double seconds, callback):
        """Calls `callback()` no earlier than `seconds` from now, and up to 1 ms later."""
        return self._enter(self._slot_in(seconds), callback)

    cdef long _slot_in(self, double seconds) except? -1:
        """The first slot that begins in `seconds` or later."""
        return <long> (((<double> self._now()) + seconds) * SLOTS_A_SECOND) + 1

    cdef Timer _enter(self, long slot, callback):
        cdef Timer timer = Timer()
        cdef list timers = self._slots.get(slot)
        timer.callback = callback
        if timers is not None:
            timers.append(timer)
            return timer
        timers = self._slots[slot] = long_list()
        timers.append(timer)
        heapq.heappush(self._order, slot)
        if self._order[0] == slot:
            self._arm()
        return timer

    cdef int _arm(self) except -1:
        if self._handle is not None:
            self._handle.cancel()
        when = self._now() if self._due else self._order[0] * SLOT_S
        self._handle = self._loop.call_at(when, self._fire)
        return 0

    def _fire(self):
        self._handle = None
        now = self._now()
        until = time.perf_counter() + TURN_S
        while time.perf_counter() < until:
            if self._due:
                self._call(self._due.pop())
            elif self._order and self._order[0] * SLOT_S <= now:
                # In place: a slot may have 100,000.
                self._due = self._slots.pop(heapq.heappop(self._order))
                self._due.reverse()
            else:
                break
        if self._due or self._order:
            self._arm()

    cdef int _call(self, Timer timer) except -1:
        callback = timer.callback
        timer.callback = None
        if callback is not None:
            try:
                callback()
            except Exception:
                log.exception("a timer failed")
        return 0

    def close(self):
        if self._handle is not None:
            self._handle.cancel()
        self._slots.clear()
        self._order.clear()
        self._due.clear()
