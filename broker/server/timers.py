"""One timer for everything that happens later: expiry, heartbeats, handshakes, sweeps.

Deadlines fall into slots; one timer of the loop waits for the earliest slot. Setting and cancelling
cost a dictionary entry each, so that a hundred thousand of them are nothing special. A slot is a
millisecond for what has to be in time, as a message's expiry, and ten or more for the rest, so that
many connections' heartbeats wake the loop together: 10,000 of them eight times a second.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable

from broker.kernel.through import long_list

log = logging.getLogger("leveret.timers")

SLOT_S = 0.001
COARSE_SLOTS = 10
COARSEST_SLOTS = 128
FINE_UNTIL_SLOTS = 2048
"""A time from this one on is rounded up by up to a 128th of it."""
TURN_S = 0.001
"""The loop is left to others when callbacks that are due have taken this long."""


class Timer:
    """A callback to come."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Takes it back; harmless when it has fired."""
        self.callback = None


class TimingWheel:
    """Timers on the loop's monotonic clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, list[Timer]] = {}
        self._order: list[int] = long_list()
        self._due: list[Timer] = []
        """Of the slot that fires, those that are left, the next one last."""
        self._handle: asyncio.TimerHandle | None = None

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls `callback()` no earlier than `seconds` from now, and up to 10 ms later, or
        up to 1 % later and 128 ms at most."""
        slot = int((self._loop.time() + seconds) / SLOT_S) + 1
        ahead, coarse = int(seconds / SLOT_S), COARSE_SLOTS
        if ahead >= FINE_UNTIL_SLOTS:
            # A power of two, so that slots of all sizes coincide.
            coarse = min(COARSEST_SLOTS, 1 << ((ahead >> 7).bit_length() - 1))
        return self._enter(-(-slot // coarse) * coarse, callback)

    def punctual(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls `callback()` no earlier than `seconds` from now, and up to 1 ms later."""
        return self._enter(int((self._loop.time() + seconds) / SLOT_S) + 1, callback)

    def _enter(self, slot: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        timers = self._slots.get(slot)
        if timers is not None:
            timers.append(timer)
            return timer
        timers = self._slots[slot] = long_list()
        timers.append(timer)
        heapq.heappush(self._order, slot)
        if self._order[0] == slot:
            self._arm()
        return timer

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        when = self._loop.time() if self._due else self._order[0] * SLOT_S
        self._handle = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._loop.time()
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

    @staticmethod
    def _call(timer: Timer) -> None:
        callback, timer.callback = timer.callback, None
        if callback is not None:
            try:
                callback()
            except Exception:
                log.exception("a timer failed")

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._slots.clear()
        self._order.clear()
        self._due.clear()
