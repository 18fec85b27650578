"""What a transfer takes its messages from, and how far it is: a queue, or a stream (copies only).

`step()` works for a slice and returns a word of `moving`; `place` is how far all before is handed
over, `next_bound` how far the next note of progress lets it go.
"""

from __future__ import annotations

from typing import Any

from broker.features.transfer.moving import (
    AT_BOUND,
    DONE,
    IN_FLIGHT,
    MORE,
    READING,
    HandOver,
    Mover,
)
from broker.features.transfer.records import Transfer
from broker.fields.headers import ListedProperties
from broker.store.log.walk import Walk, ends_of

SLICE_NS = 500_000
BATCH = 64
"""Messages of a stream that are read at a time; all of them are handed over in one slice."""
BATCH_BYTES = 256 * 1024
BOUND_OFFSETS = 4096
"""Messages of a stream between two notes of progress."""

Place = tuple[int, int]


def end_of(queue: Any) -> dict[int, int]:
    """Marks the end of a source: what comes later is not touched."""
    if queue.type == "stream":
        return {0: queue.stream_figures()["next_offset"]}
    return ends_of(queue.store) if queue.store is not None else {}


class FromQueue:
    """A queue whose messages are moved or copied."""

    def __init__(self, queue: Any, transfer: Transfer, rules: Any, hand_over: HandOver) -> None:
        is_copy = transfer.mode == "copy"
        self._walk = Walk(
            queue.store,
            dict(transfer.ends),
            not is_copy,
            transfer.level if is_copy else None,
            transfer.at if is_copy else 0,
        )
        self._mover = Mover(
            queue,
            self._walk,
            rules,
            hand_over,
            copies=is_copy,
            most=transfer.limit,
        )
        self._mover.resume(transfer.looked, transfer.matched, transfer.doubtful)

    @property
    def looked(self) -> int:
        return self._mover.looked

    @property
    def matched(self) -> int:
        return self._mover.matched

    @property
    def unreadable(self) -> int:
        return self._walk.unreadable

    @property
    def place(self) -> Place:
        return self._walk.level, self._walk.at

    @property
    def next_bound(self) -> Place:
        return self._mover.may_go_to()

    def set_bound(self, bound: Place) -> None:
        self._mover.set_bound(*bound)

    def step(self) -> int:
        state = self._mover.go_on(SLICE_NS)
        # It is over when the last message is settled.
        return IN_FLIGHT if state == DONE and self._mover.in_flight else state

    @property
    def in_flight(self) -> int:
        return self._mover.in_flight

    def end(self) -> None:
        self._mover.end()


class FromStream:
    """A stream that is copied."""

    in_flight = 0

    def __init__(self, queue: Any, transfer: Transfer, rules: Any, hand_over: HandOver) -> None:
        self._queue = queue
        self._rules = rules
        self._hand_over = hand_over
        self._most = transfer.limit
        self._end = dict(transfer.ends).get(0, 0)
        self._doubtful = transfer.doubtful[1] if transfer.doubtful is not None else -1
        self._bound = -1
        self._at = transfer.at
        self._rows: list[Any] = []
        self._is_reading = False
        self.looked = transfer.looked
        self.matched = transfer.matched
        self.unreadable = 0

    @property
    def place(self) -> Place:
        return 0, self._at

    @property
    def next_bound(self) -> Place:
        return 0, self._at + BOUND_OFFSETS

    def set_bound(self, bound: Place) -> None:
        self._bound = bound[1]

    def step(self) -> int:
        if self._is_reading:
            return READING
        if not self._rows:
            if self._at >= self._end or self._queue.deleted:
                return DONE
            self._is_reading = True
            start = self._queue.start_of(self._at, 0)
            self._queue.browse(start, BATCH, BATCH_BYTES, self._got)
            return READING if self._is_reading else MORE
        while self._rows:
            if self._most and self._hand_over.handed >= self._most:
                return DONE
            offset, timestamp, exchange, routing_key, listed, body = self._rows[0]
            if offset >= self._bound:
                return AT_BOUND
            if self._rules.takes(routing_key, listed, timestamp):
                refused = self._hand_over.give_row(
                    exchange,
                    routing_key,
                    _without_offset(listed),
                    body,
                    timestamp,
                    True,
                    offset <= self._doubtful,
                )
                if refused:
                    return refused
                self.matched += 1
            self.looked += 1
            self._at = offset + 1
            del self._rows[0]
        return MORE

    def _got(self, rows: list[Any]) -> None:
        self._is_reading = False
        self._rows = [row for row in rows if row[0] < self._end]
        if not self._rows:
            # Retention has taken the rest, or it cannot be read.
            self._at = self._end

    def end(self) -> None:
        self._rows = []


def _without_offset(listed: bytes) -> bytes:
    properties = ListedProperties(listed)
    properties.remove_header("x-stream-offset")
    return properties.encode()
