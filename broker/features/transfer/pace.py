"""How fast a transfer hands messages over."""

from __future__ import annotations

import time
from collections.abc import Callable

NO_LIMIT = 2**64 - 1

BURST_S = 0.1
"""A transfer that was delayed hands over at once what this time would have allowed,"""

BURST_LEAST = 2.0
"""or this number of messages, if that is more."""

WAIT_LEAST_S = 0.01


class Pace:
    """At most `rate` messages a second, 0 for any number; exactly that rate on average, as long as
    there are messages. `now()` is a monotonic time in seconds."""

    def __init__(self, rate: int, now: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._now = now
        self._at = now()
        self._room = 1.0
        self._handed: int | None = None

    def allowed(self, handed: int) -> int:
        """Up to which count a transfer that has handed over `handed` messages may continue."""
        if not self.rate:
            return NO_LIMIT
        now = self._now()
        spent = 0 if self._handed is None else handed - self._handed
        gained = (now - self._at) * self.rate
        self._room = min(max(BURST_LEAST, self.rate * BURST_S), self._room - spent + gained)
        self._handed, self._at = handed, now
        return handed + max(0, int(self._room))

    @property
    def wait_s(self) -> float:
        """When a transfer asks again that has used up what is allowed."""
        return max(WAIT_LEAST_S, 1.0 / self.rate) if self.rate else 0.0
