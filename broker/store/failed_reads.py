"""What could not be read, and when it is tried again.

A read that the disk fails says nothing about the message: it stays, and its queue waits. Nothing
but traffic would ask for it again, so after a pause everybody who waits is woken: once each, and
however many there are, with one look at the clock. The log is told once a pause.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable

log = logging.getLogger("leveret.store")

WOKEN_AT_ONCE = 1000
"""Queues that are woken in one turn of the loop."""


class FailedReads:
    """`retry_after`: seconds of the pause. `tick` is called on the loop, some times a second."""

    def __init__(
        self, retry_after: float = 1.0, now: Callable[[], float] = lambda: time.monotonic()
    ) -> None:
        self.retry_after = retry_after
        self.count = 0
        """Since the start."""
        self.last_error = ""
        """What happened last; empty when nothing waits to be read again."""
        self.now = now
        self._waiting: dict[Callable[[], object], None] = {}
        self._due = 0.0
        self._settled = 0.0
        self._untold = 0

    @property
    def waiting(self) -> int:
        """How many wait to be woken."""
        return len(self._waiting)

    def add(self, what: str, error: str, wake: Callable[[], object]) -> None:
        """Reading `what` failed; `wake()` is called after the pause."""
        self.count += 1
        self.last_error = f"reading {what} failed: {error}"
        if self.now() < self._due:
            self._untold += 1
        else:
            more = f" ({self._untold:,} more since the last time)" if self._untold else ""
            self._untold = 0
            self._due = self.now() + self.retry_after
            log.error(
                "%s%s; nothing is dropped, and it is tried again every %g s",
                self.last_error,
                more,
                self.retry_after,
            )
        self._waiting[wake] = None

    def tick(self) -> None:
        """Wakes who waits, if the pause is over."""
        if not self.last_error or self.now() < max(self._due, self._settled):
            return
        if not self._waiting:
            # What was woken was read, or is gone.
            log.warning("what could not be read is read again, or nobody wants it any more")
            self.last_error = ""
            return
        for wake in list(itertools.islice(self._waiting, WOKEN_AT_ONCE)):
            del self._waiting[wake]
            wake()
        if not self._waiting:
            # Until then it may turn out that the disk still fails.
            self._settled = self.now() + self.retry_after
