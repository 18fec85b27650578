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

log = logging.getLogger("leveret.timers")

SLOT_S = 0.001
COARSE_SLOTS = 10
COARSEST_SLOTS = 128
FINE_UNTIL_SLOTS = 2048
"""A time from this one on is rounded up by up to a 128th of it."""
TURN_S = 0.002
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
        self._order: list[int] = []
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
        self._slots[slot] = [timer]
        heapq.heappush(self._order, slot)
        if self._order[0] == slot:
            self._arm()
        return timer

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_at(self._order[0] * SLOT_S, self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._loop.time()
        until = time.perf_counter() + TURN_S
        while self._order and self._order[0] * SLOT_S <= now and time.perf_counter() < until:
            slot = heapq.heappop(self._order)
            timers = self._slots.pop(slot)[::-1]
            while timers and time.perf_counter() < until:
                self._call(timers.pop())
            if timers:  # in the next turn, before what was due later
                self._slots[slot] = timers[::-1]
                heapq.heappush(self._order, slot)
        if self._order:
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
