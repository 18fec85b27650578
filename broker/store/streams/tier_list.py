"""The list of a stream's segments that lie in an object store: `tier.journal` beside them.

It is the only authority on what an object holds: its name, ETag, length, checksums, and the whole
summary of the segment, so that a segment whose file was removed is found, counted and searched
without a request to the store. An entry is synced before the file may go. docs/tiers.md has the
layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from broker.schema.tier_work import Tiered
from broker.store.commit.persister import Persister
from broker.store.directory.threaded_journal import Done, ThreadedJournal

if TYPE_CHECKING:
    from broker.store.streams.store import StreamStore
    from broker.store.streams.summary import Summary

NAME = "tier.journal"

AHEAD = 4096
"""Space behind the file, as `ThreadedJournal` has it."""
ADDED, REMOVED = 1, 2


class Reader(Protocol):
    """Who reads a stream: a `StreamCursor`, its index, or a search. `cold_run` says how many reads
    followed each other: the more, the more is fetched ahead."""

    @property
    def store(self) -> StreamStore: ...
    @property
    def cold_run(self) -> int: ...
    def cold_ready(self, problem: str) -> None: ...


class Tier(Protocol):
    """What streams ask about their segments in the object store; one for all streams."""

    def cached(self, cursor: Reader, summary: Summary, position: int, length: int) -> Any:
        """The local copy (`cold.ColdFile`) of a segment that has these bytes, or None."""

    def fetch(self, cursor: Reader, summary: Summary, position: int, length: int) -> int:
        """Gets these bytes; then calls `cursor.cold_ready(problem)`, later. The problem is empty
        if they are there. Returns how many requests to the store that takes."""

    def doubt(self, store: StreamStore, summary: Summary) -> None:
        """The local copy of a segment is wrong: it is not used any more."""

    def dropped(self, store: StreamStore, summary: Summary) -> None:
        """The stream does not hold this segment any more; it had an object."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the file. `tiered` and `summary` are there for ADDED."""

    kind: int
    number: int
    tiered: Tiered | None = None
    summary: bytes = b""


class TierList:
    """The list of one stream, of this incarnation, in its directory."""

    def __init__(self, persister: Persister, directory: str) -> None:
        self._journal = ThreadedJournal(persister, f"{directory}/{NAME}", self._is_living, AHEAD)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Row)
        self.listed: dict[int, str] = {}
        """Segment -> name of its object, as far as the synced list says."""
        self.is_whole = True
        """Whether recovery found every entry: nothing may be concluded from one that is missing
        where it did not."""

    @property
    def path(self) -> str:
        return self._journal.path

    def recover(self, problems: list[str]) -> Iterator[Row]:
        """The entries that count; adds sentences about what was wrong. Raises OSError,
        ValueError."""
        rows: dict[int, Row] = {}
        payloads = self._journal.recover()
        for payload in payloads:
            try:
                row = self._decoder.decode(payload)
            except msgspec.MsgspecError:
                self.is_whole = False
                continue
            if row.kind == ADDED and row.tiered is not None and row.tiered.fits():
                rows[row.number] = row
            elif row.kind == REMOVED:
                rows.pop(row.number, None)
            else:
                self.is_whole = False
        if self._journal.was_damaged:
            self.is_whole = False
        if not self.is_whole:
            problems.append(
                f"{self.path} was damaged: what it does not say of segments in the object store is "
                f"no longer known; {self._journal.kept or 'what cannot be read'} is kept, and "
                "no object of this stream is deleted"
            )
        self.listed = {row.number: row.tiered.name for row in rows.values() if row.tiered}
        if self._journal.is_cut:
            self._journal.rewrite(self._encoder.encode(row) for row in rows.values())
        yield from rows.values()

    def add(self, number: int, tiered: Tiered, summary: bytes, done: Done) -> None:
        """Enters a segment; `done` follows when that is synced."""

        def written(problem: str) -> None:
            if not problem:
                self.listed[number] = tiered.name
            done(problem)

        self._journal.append(self._encoder.encode(Row(ADDED, number, tiered, summary)), written)

    def remove(self, number: int, done: Done) -> None:
        """Takes a segment out; `done` follows when that is synced."""

        def written(problem: str) -> None:
            if not problem:
                self.listed.pop(number, None)
            done(problem)

        self._journal.append(self._encoder.encode(Row(REMOVED, number)), written)

    def prepare(self) -> None:
        """Sees to it that segments can be entered on a full disk, too; to be called often."""
        self._journal.prepare()

    def compact(self) -> None:
        """Lets the file be rewritten where most of it is outdated."""
        self._journal.compact(len(self.listed))

    def _is_living(self, payload: bytes) -> bool:
        try:
            row = self._decoder.decode(payload)
        except msgspec.MsgspecError:
            return False
        return (
            row.kind == ADDED
            and row.tiered is not None
            and self.listed.get(row.number) == row.tiered.name
        )

    def end(self, ended: Any) -> bool:
        """See `ThreadedJournal.end`: the stream is deleted."""
        return self._journal.end(ended)
