"""What a transfer takes its messages from, and how far it is: a queue, or a stream (copies and
replays only).

`step()` works for a slice and returns a word of `hand_over`; `place` is how far all before is
handed over, `next_bound` how far the next note of progress lets it go. `is_halfway` says that some
of very many queues have the next message, and others not yet.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any

from broker.features.transfer.hand_over import (
    AT_BOUND,
    DONE,
    IN_FLIGHT,
    MORE,
    PACED,
    PART,
    READING,
    HandOver,
)
from broker.features.transfer.moving import Mover
from broker.features.transfer.records import Transfer
from broker.features.transfer.stamp import Stamp
from broker.fields.headers import ListedProperties
from broker.fields.history_headers import is_no_message, remove_ours
from broker.kernel import clock
from broker.schema.message_history import HISTORY
from broker.store.log.walk import Walk, ends_of

SLICE_NS = 500_000
BATCH = 64
"""Messages of a stream that are read at a time; all of them are handed over in one slice."""
BATCH_BYTES = 256 * 1024
BOUND_OFFSETS = 4096
"""Messages of a stream between two notes of progress."""

Place = tuple[int, int]
Record = Callable[[bytes, bytes, bytes, tuple[Any, ...]], object]
"""Routing key, properties, body and queues of a message that was handed over."""

Replayed = Callable[[int, tuple[Any, ...]], object]
"""Offset of the message, and the queues that it was handed over to."""


def end_of(queue: Any) -> dict[int, int]:
    """Marks the end of a source: what comes later is not touched."""
    if queue.type == "stream":
        return {0: queue.stream_figures()["next_offset"]}
    return ends_of(queue.store) if queue.store is not None else {}


class FromQueue:
    """A queue whose messages are moved or copied."""

    trouble = ""
    passed = 0

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

    @property
    def is_halfway(self) -> bool:
        return self._mover.is_halfway

    def let_be(self) -> None:
        """The message that is halfway stays where it is, too."""
        self._mover.let_be()

    def end(self) -> None:
        self._mover.end()


class FromStream:
    """A stream that is copied, or replayed: all messages between two offsets, or those that a
    search found."""

    in_flight = 0

    def __init__(
        self,
        queue: Any,
        transfer: Transfer,
        rules: Any,
        hand_over: HandOver,
        record: Record | None = None,
        replayed: Replayed | None = None,
    ) -> None:
        """`record` writes what is handed over into the history of the target, `replayed` notes in
        that of the source that it was."""
        self._queue = queue
        self._record = record
        self._replayed = replayed
        self._has_records = transfer.mode == "replay" and transfer.source == HISTORY
        self._rules = rules
        self._hand_over = hand_over
        hand_over.is_kept = record is not None or replayed is not None
        self._most = transfer.limit
        self._stamp = Stamp(transfer) if transfer.mode == "replay" else None
        self._end = dict(transfer.ends).get(0, 0)
        self._doubtful = transfer.doubtful[1] if transfer.doubtful is not None else -1
        self._bound = -1
        self._at = transfer.at
        self._wanted = (
            None
            if transfer.offsets is None
            else [offset for offset in transfer.offsets if offset >= self._at]
        )
        self._awaited = -1
        self._rows: list[Any] = []
        self._given = b""
        self._browser: Any = None
        self._is_reading = False
        self.looked = transfer.looked
        self.matched = transfer.matched
        self.passed = transfer.passed
        self.unreadable = 0

    @property
    def place(self) -> Place:
        return 0, self._at

    @property
    def next_bound(self) -> Place:
        if self._wanted:
            return 0, self._wanted[:BOUND_OFFSETS][-1] + 1
        return 0, self._at + BOUND_OFFSETS

    @property
    def trouble(self) -> str:
        """Why a read takes long; empty: there is no trouble."""
        return (self._browser.trouble or "") if self._is_reading and self._browser else ""

    @property
    def is_halfway(self) -> bool:
        return self._hand_over.is_halfway

    def set_bound(self, bound: Place) -> None:
        self._bound = bound[1]

    def step(self) -> int:
        if self._is_reading:
            return READING
        if not self._rows:
            return self._read()
        if self._hand_over.is_wide:
            refused = self._hand_over.give_more_rows(SLICE_NS)
            if not refused:
                self._handed_over()
            return refused if refused and refused != PART else MORE
        while self._rows:
            if self._most and self._hand_over.handed >= self._most:
                return DONE
            offset, timestamp, _, routing_key, listed, _ = self._rows[0]
            if offset >= self._bound:
                return AT_BOUND
            if self._has_records and is_no_message(ListedProperties(listed)):
                self._pass(offset)
                self.passed += 1
                del self._rows[0]
                continue
            if self._rules.takes(routing_key, listed, timestamp):
                if self._hand_over.handed >= self._hand_over.allowed:
                    return PACED
                refused = self._give(*self._rows[0])
                if refused:
                    return MORE if refused == PART else refused
                self._handed_over()
                continue
            self.looked += 1
            self._pass(offset)
            del self._rows[0]
        return MORE

    def _handed_over(self) -> None:
        """The first row is."""
        offset, _, _, routing_key, _, body = self._rows[0]
        if self._replayed is not None:
            self._replayed(offset, self._hand_over.targets)
        if self._record is not None:
            self._record(routing_key, self._given, body, self._hand_over.targets)
        self.matched += 1
        self.looked += 1
        self._pass(offset)
        del self._rows[0]

    def _give(
        self,
        offset: int,
        timestamp: int,
        exchange: bytes,
        routing_key: bytes,
        listed: bytes,
        body: bytes,
    ) -> int:
        properties = ListedProperties(listed)
        properties.remove_header("x-stream-offset")
        if self._has_records:
            remove_ours(properties)
        plain = properties.encode()
        self._given = plain
        if self._stamp is not None:
            self._stamp.put(properties, offset, timestamp)
            # Its time to live begins now, as with a message that is published now.
            timestamp = clock.now()
            # Headers that are full have no room for the stamp.
            with contextlib.suppress(ValueError):
                self._given = properties.encode()
        return self._hand_over.give_row(
            exchange,
            routing_key,
            self._given,
            body,
            timestamp,
            True,
            offset <= self._doubtful,
        )

    # -- reading -----------------------------------------------------------------------------------

    def _read(self) -> int:
        if self._at >= self._end or self._wanted == [] or self._queue.deleted:
            return DONE
        first, count = (self._at, BATCH) if self._wanted is None else self._run(self._wanted)
        if first >= self._queue.store.safe_offset and first != self._awaited:
            # It can be read once it is synced, as it is before a note.
            self._awaited = first
            return AT_BOUND
        self._is_reading = True
        start = self._queue.start_of(first, 0)
        end = self._end if self._wanted is None else first + count
        self._browser = self._queue.browse(start, count, BATCH_BYTES, partial(self._got, end))
        return READING if self._is_reading else MORE

    def _run(self, wanted: list[int]) -> tuple[int, int]:
        """The next offset that is wanted, and how many follow one another from there."""
        count = 1
        while count < min(BATCH, len(wanted)) and wanted[count] == wanted[0] + count:
            count += 1
        return wanted[0], count

    def _got(self, end: int, rows: list[Any]) -> None:
        """What lies before `end` of what was read."""
        self._is_reading = False
        self._rows = [row for row in rows if row[0] < end]
        if not self._rows:
            # Retention has taken the rest, or it cannot be read.
            self._skip(end)

    def _pass(self, offset: int) -> None:
        """Continues behind this message."""
        self._skip(offset)
        if self._wanted is not None:
            self._wanted.pop(0)
        self._at = offset + 1

    def _skip(self, end: int) -> None:
        """No message lies before `end` any more."""
        if self._wanted is None:
            self.passed += end - self._at
        else:
            count = bisect_left(self._wanted, end)
            self.passed += count
            del self._wanted[:count]
        self._at = end

    def let_be(self) -> None:
        """The message that is halfway goes to no further queue."""
        self._hand_over.forget()

    def end(self) -> None:
        self.let_be()
        self._rows = []
