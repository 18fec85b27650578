"""Deletes queues that were not used for the time in their x-expires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.kernel import clock
from broker.queues.types import MessageQueue


class UnusedQueues:
    """The timers of one vhost. `later(seconds, callback)` sets one, `delete(queue)` is called when
    a queue's time is over."""

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], Any],
        delete: Callable[[MessageQueue], None],
    ) -> None:
        self._later = later
        self._delete = delete
        self._timers: dict[MessageQueue, Any] = {}

    def watch(self, queue: MessageQueue) -> None:
        """Starts the time anew after which the queue goes, as x-expires says now."""
        self.forget(queue)
        after = expires(queue)
        if after >= 0:
            queue.used_at = clock.now()
            self._look_in(queue, after, after)

    def forget(self, queue: MessageQueue) -> None:
        """The queue was deleted, or its time may be another one."""
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()

    def _look_in(self, queue: MessageQueue, ms: int, after: int) -> None:
        self._timers[queue] = self._later(ms / 1000, lambda: self._look(queue, after))

    def _look(self, queue: MessageQueue, after: int) -> None:
        """Deletes a queue that had no consumer, get or declare for `after` ms; otherwise checks
        again at the earliest time at which that can be true."""
        self._timers.pop(queue, None)
        if queue.deleted:
            return
        idle = 0 if queue.consumer_count else clock.now() - queue.used_at
        if idle >= after:
            self._delete(queue)
        else:
            self._look_in(queue, after - idle, after)


def expires(queue: MessageQueue) -> int:
    """The x-expires that holds for a queue, in ms; -1 for none."""
    return queue.limits.expires if queue.limits is not None else -1
