"""Looks through the delayed messages of an exchange, soonest first, in slices of the event loop.

What needs files is in methods for a thread (`next_entries`, `read`), what needs the broker's own
state in those for the loop (`waiting`). Memory is bounded by what one step returns.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from broker.features.delayed.schedule import in_order
from broker.store.files import disk

Place = tuple[int, int, int]
"""When a message is due, and segment and position of its record: the order of the index."""

START: Place = (-1, 0, 0)

_ENTRY = struct.Struct("<qIIIII")
_RUN_HEADER_BYTES = 32
# docs/formats/queue-segment.md: length, check, timestamp, flags, lengths of exchange and routing
# key, a reserved octet, length of the body.
_RECORD = struct.Struct("<IIqBBBBI")
_BLOCK = 64
# Read of a record at first: most have no longer names and properties.
_HEAD_BYTES = 1024


class Entry(NamedTuple):
    """One row of the index."""

    due: int
    segment: int
    position: int
    length: int
    body_length: int

    @property
    def place(self) -> Place:
        return self.due, self.segment, self.position


class Waiting(NamedTuple):
    """One message that waits. `listed` are its properties as on the wire, with the delay
    negated."""

    entry: Entry
    routing_key: bytes
    listed: bytes


class _Run:
    """Sorted entries, in memory or in the file of a run; a file that was removed has none."""

    def __init__(self, data: bytes | None, path: str, first: int, count: int) -> None:
        self._data = data
        self._path = path
        self._first = first
        self._count = count

    def _entries(self, at: int, count: int) -> list[Entry]:
        start, length = at * _ENTRY.size, min(count, self._count - at) * _ENTRY.size
        if self._data is not None:
            part = self._data[start : start + length]
        else:
            try:
                part = disk.read_part(self._path, _RUN_HEADER_BYTES + start, length)
            except FileNotFoundError:
                return []
        whole = len(part) - len(part) % _ENTRY.size
        return [Entry(*row[:5]) for row in _ENTRY.iter_unpack(part[:whole])]

    def behind(self, after: Place) -> Iterator[Entry]:
        """The entries behind a place, in order."""
        low, high = self._first, self._count
        while low < high:
            middle = (low + high) // 2
            found = self._entries(middle, 1)
            if not found:
                return
            if found[0].place > after:
                high = middle
            else:
                low = middle + 1
        while low < self._count:
            block = self._entries(low, _BLOCK)
            if not block:
                return
            # What was cancelled before it had a file has no length.
            yield from (entry for entry in block if entry.length)
            low += len(block)


class Browser:
    """Goes through a holding's messages that are due behind `after` and not later than `until`
    (ms; None: any time)."""

    def __init__(self, holding: Any, after: Place, until: int | None) -> None:
        self._holding = holding
        self._struck: int = holding.schedule.struck
        self._snapshot = holding.schedule.snapshot()
        self._directory: str = holding.store.directory
        self._after = after
        self._until = until
        self._merged: Iterator[Entry] | None = None

    @property
    def is_stale(self) -> bool:
        """Whether a message was cancelled since: what the index said of it is noted nowhere, and
        another message may lie in its place."""
        return bool(self._holding.schedule.struck != self._struck)

    def next_entries(self, count: int) -> list[Entry]:
        """For a thread: up to `count` more entries; none when there are no more."""
        if self._merged is None:
            runs = []
            for source in self._snapshot:
                if isinstance(source[0], bytes):
                    data = source[0] if source[1] else in_order(source[0])
                    runs.append(_Run(data, "", 0, len(data) // _ENTRY.size))
                else:
                    runs.append(_Run(None, *source))
            self._snapshot = []
            self._merged = heapq.merge(*(run.behind(self._after) for run in runs))
        found = list(islice(self._merged, count))
        if self._until is not None:
            found = [entry for entry in found if entry.due <= self._until]
        return found

    def waiting(self, entries: list[Entry]) -> list[Waiting | Entry]:
        """For the loop: those that still wait, unless this `is_stale`. A record that is in memory
        comes with what it says; the others are for `read`."""
        found: list[Waiting | Entry] = []
        for entry in entries:
            if self._holding.deleted or not self._holding.is_waiting(*entry.place):
                continue
            record = self._holding.in_memory(entry.segment, entry.position)
            if record is None:
                found.append(entry)
            else:
                _, _, routing_key, listed, _, _ = record
                found.append(Waiting(entry, routing_key, listed))
        return found

    def read(self, entries: list[Waiting | Entry]) -> list[Waiting]:
        """For a thread: reads what is on disk, without bodies. A record that cannot be read, or is
        gone by now, is left out."""
        found = []
        for entry in entries:
            waiting = entry if isinstance(entry, Waiting) else self._on_disk(entry)
            if waiting is not None:
                found.append(waiting)
        return found

    def _on_disk(self, entry: Entry) -> Waiting | None:
        path = f"{self._directory}/msgs.{entry.segment:010d}"
        wanted = entry.length - entry.body_length
        try:
            data = disk.read_part(path, entry.position, min(wanted, _HEAD_BYTES))
            if len(data) < _RECORD.size:
                return None
            length, _, due, _, exchange, key, _, body_length = _RECORD.unpack_from(data)
            if (due, length + 4, body_length) != (entry.due, entry.length, entry.body_length):
                return None
            if wanted > len(data):
                data = disk.read_part(path, entry.position, wanted)
        except FileNotFoundError:
            return None
        at = _RECORD.size + exchange
        return Waiting(entry, data[at : at + key], data[at + key : wanted])
