"""Closes channels that leave a delivery unacknowledged for too long (consumer timeout).

Nothing is noted per delivery. While a channel has consumers whose queues have a timeout, a timer
looks at it every sixteenth of the shortest one and notes which delivery tag comes next. When such a
note is as old as the timeout, whatever was delivered before it and is still open is overdue. So a
channel is never closed early, and at most an eighth of the timeout late.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from broker.kernel import clock
from broker.schema.errors import PreconditionFailed

if TYPE_CHECKING:
    from broker.kernel.contracts import Consumer
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection

LOOKS_PER_TIMEOUT = 16
# Not more often, however short the timeout.
PAUSE_LEAST_S = 0.01


def timeout_of(queue: Any, default_s: float) -> int:
    """Milliseconds that a delivery of this queue may stay unacknowledged; 0 is forever. A stream
    has no such timeout."""
    limits = queue.limits
    own: int = limits.consumer_timeout if limits is not None else -1
    if queue.type == "stream":
        return 0
    return own if own >= 0 else int(default_s * 1000)


class Notes:
    """What is known of the deliveries that share a timeout: (ms of our clock, the next tag then),
    and up to which tag nothing of `queues` is open any more."""

    __slots__ = ("clear_to", "queues", "times")

    def __init__(self, queues: set[Any]) -> None:
        self.times: deque[tuple[int, int]] = deque()
        self.queues = queues
        self.clear_to = 0


class AckTimeouts:
    """One channel under watch, from its first consumer or get on."""

    def __init__(self, channel: Channel, connection: Connection) -> None:
        self._channel = channel
        self._connection = connection
        self._timer: Any = None
        self._due_at = 0
        self._notes: dict[int, Notes] = {}

    def watch(self) -> None:
        """Looks again in time, whatever timeout is shortest now."""
        consumers = {
            *self._channel.deliveries.consumers.values(),
            *self._channel.deliveries.holders(),
        }
        timeouts = [self._timeout(each) for each in consumers if not each.no_ack]
        shortest = min((timeout for timeout in timeouts if timeout), default=0)
        if shortest:
            self._look_after(shortest)
        else:
            self.stop()

    def add(self, consumer: Consumer) -> None:
        """Looks in time for this one too. Where its timeout is longer than before, or none any
        more, the look that is due finds that out."""
        timeout = self._timeout(consumer)
        if timeout:
            self._look_after(timeout)

    def _look_after(self, timeout: int) -> None:
        pause = max(timeout / 1000 / LOOKS_PER_TIMEOUT, PAUSE_LEAST_S)
        due_at = clock.now() + int(pause * 1000)
        if self._timer is not None:
            if self._due_at <= due_at:
                return
            self._timer.cancel()
        self._due_at = due_at
        self._timer = self._connection.host.later(pause, self._look)

    def stop(self) -> None:
        """The channel ends, or nothing of it can become overdue."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._notes.clear()

    def _timeout(self, consumer: Consumer) -> int:
        return timeout_of(consumer.queue, self._connection.host.config.consumer_timeout)

    def held_since(self, tag: int) -> int | None:
        """Until when at the latest a delivery went out (ms of our clock); None if no note tells."""
        known = [
            at for notes in self._notes.values() for at, next_tag in notes.times if tag < next_tag
        ]
        return min(known, default=None)

    def _look(self) -> None:
        self._timer = None
        connection = self._connection
        if connection.blocked or connection.paused or connection.long_work is not None:
            # Its acks may wait in the socket, which is not read: that is not its fault.
            self._notes.clear()
        else:
            now = clock.now()
            holders: dict[int, set[Any]] = {}
            for consumer in self._channel.deliveries.holders():
                timeout = self._timeout(consumer)
                if timeout:
                    holders.setdefault(timeout, set()).add(consumer.queue)
            for timeout in self._notes.keys() - holders.keys():
                del self._notes[timeout]
            for timeout, queues in holders.items():
                if self._is_overdue(timeout, queues, now):
                    self._close(timeout)
                    return
        self.watch()

    def _is_overdue(self, timeout: int, queues: set[Any], now: int) -> bool:
        notes = self._notes.setdefault(timeout, Notes(queues))
        if notes.queues != queues:
            # Another queue has this timeout now, and may have older deliveries.
            notes.queues, notes.clear_to = queues, 0
        times = notes.times
        overdue_before = 0
        while times and now - times[0][0] >= timeout:
            overdue_before = times.popleft()[1]
        if overdue_before:
            # What is clear stays clear: each tag is looked at once.
            found = self._channel.deliveries.first_held(notes.clear_to, overdue_before, queues)
            if found < overdue_before:
                return True
            notes.clear_to = overdue_before
        if not times or (now - times[-1][0]) * LOOKS_PER_TIMEOUT >= timeout:
            times.append((now, self._channel.deliveries.next_tag))
        return False

    def _close(self, timeout: int) -> None:
        number = self._channel.number
        self._connection.close_channel(
            self._channel,
            PreconditionFailed(
                f"delivery acknowledgement on channel {number} timed out. "
                f"Timeout value used: {timeout} ms. It comes from x-consumer-timeout, a policy, "
                "or the setting consumer_timeout"
            ),
            0,
            0,
        )
