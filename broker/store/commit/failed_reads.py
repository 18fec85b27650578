"""What could not be read, and when it is tried again.

A failed read does not mean that the message is damaged: the message stays, and its queue waits.
Only traffic would repeat the read, so each waiting queue or reader is woken a pause after its own
first failure, whatever fails elsewhere meanwhile. The log has one line for each pause.

A queue that was woken reads again within a moment, or does not need the message any more. So reads
work again when no queue waits, and every read that was under way a pause after the last one was
woken has ended.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable

log = logging.getLogger("leveret.store")

WOKEN_AT_ONCE = 1000
"""Queues that are woken in one turn of the loop."""

Progress = tuple[tuple[int, int], ...]
"""For each thread that reads: reads asked of it since the start, and how many of them have not
ended. They end in the order in which they were asked."""


class FailedReads:
    """`retry_after`: seconds of the pause. `tick` is called on the loop, some times a second."""

    def __init__(
        self,
        retry_after: float = 1.0,
        now: Callable[[], float] = lambda: time.monotonic(),
        progress: Callable[[], Progress] = lambda: (),
    ) -> None:
        self.retry_after = retry_after
        self.count = 0
        """Since the start."""
        self.last_error = ""
        """What happened last; empty when nothing waits to be read again."""
        self.now = now
        self._progress = progress
        self._waiting: dict[Callable[[], object], float] = {}
        """When each is woken, the first one first: the pause is the same for all."""
        self._settled = 0.0
        self._under_way: Progress | None = None
        self._silent_until = 0.0
        self._untold = 0

    @property
    def waiting(self) -> int:
        """How many wait to be woken."""
        return len(self._waiting)

    def add(self, what: str, error: str, wake: Callable[[], object]) -> None:
        """Reading `what` failed; `wake()` is called after the pause."""
        now = self.now()
        self.count += 1
        self.last_error = f"reading {what} failed: {error}"
        self._under_way = None
        self._waiting.setdefault(wake, now + self.retry_after)
        if now < self._silent_until:
            self._untold += 1
            return
        more = f" ({self._untold:,} more since the last time)" if self._untold else ""
        self._untold = 0
        self._silent_until = now + self.retry_after
        log.error(
            "%s%s; nothing is dropped, and it is tried again every %g s",
            self.last_error,
            more,
            self.retry_after,
        )

    def retry(self, owners: set[int]) -> int:
        """Wakes at once those whose method waits, by `id` of its object; how many there were."""
        due = [wake for wake in self._waiting if id(getattr(wake, "__self__", None)) in owners]
        for wake in due:
            del self._waiting[wake]
            self._settled = self.now() + self.retry_after
            wake()
        return len(due)

    def tick(self) -> None:
        """Wakes those whose pause is over."""
        if not self.last_error:
            return
        now = self.now()
        for wake, due in list(itertools.islice(self._waiting.items(), WOKEN_AT_ONCE)):
            if due > now:
                break
            del self._waiting[wake]
            self._settled = now + self.retry_after
            wake()
        if not self._waiting and now >= self._settled:
            self._judge()

    def _judge(self) -> None:
        """No queue waits: logs it once the repeated reads have ended, too."""
        if self._under_way is None:
            self._under_way = self._progress()
        for (begun, _), (total, open_) in zip(self._under_way, self._progress(), strict=True):
            if total - open_ < begun:
                return
        log.warning("reads that failed have succeeded, or are no longer needed")
        self.last_error = ""
        self._under_way = None
