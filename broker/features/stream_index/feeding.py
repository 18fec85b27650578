"""Puts what streams have synced into the index of their vhost. For a thread: it waits for the
disk."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.features.stream_index.reading import (
    BACK,
    DAMAGED,
    FULL,
    HEADER,
    LARGE,
    MORE,
    KeyReader,
)
from broker.store.files import disk
from broker.store.files.sound_search import damaged_stretch
from broker.store.keys.series import Position, Series

CHUNK = 1 << 20
"""Bytes of a segment read at once."""


class Stream(NamedTuple):
    """A stream as the thread sees it. `names`: of its keys."""

    incarnation: int
    directory: str
    names: tuple[str, ...]

    def segment(self, number: int) -> str:
        """The path of a segment."""
        return f"{self.directory}/msgs.{number:010d}"


class Part(NamedTuple):
    """Synced bytes of one segment. `path` is the file that has them up to `readable`: the segment,
    or a copy of what the object store has of it. `keeps`: they are read again, and how far the
    stream is indexed stays as it is."""

    stream: Stream
    summary: Any
    position: int
    end: int
    keeps: Position | None = None
    path: str = ""
    readable: int = 0

    @property
    def segment(self) -> int:
        number: int = self.summary.number
        return number


class Full(Exception):
    """The index takes no more for now; the text says why."""


class BadCopy(Exception):
    """The copy of a segment in the object store does not have what the object has."""


def feed(series: Series, part: Part, most: int) -> int:
    """Indexes a part, or about `most` bytes of it; returns the position reached: less where the
    rest cannot be read any more, or not yet. Raises OSError, Full and BadCopy: what was read until
    then is indexed."""
    stream = part.stream
    reader = KeyReader(stream.names)
    at = part.position
    wanted = CHUNK
    while at < min(part.readable, part.position + most):
        file = series.current()
        if series.is_stalled:
            raise Full("full files wait to be put in order")
        if file.capacity - file.count < len(stream.names):
            series.seal()
            continue
        row = file.stream(stream.incarnation, (part.segment, at))
        if row < 0:
            raise Full("a file of the index has no place for one more stream")
        asked = min(wanted, part.readable - at)
        before = min(BACK, at - HEADER) if reader.looks_back else 0
        data = _read(part, at - before, before + asked)
        if data is None:
            return at
        was_last = at + asked == part.readable < part.end
        state = reader.read(
            file, row, data, stream.incarnation, part.segment, at, before if data else 0
        )
        at = reader.position if data else part.end
        wanted = CHUNK
        needs_more = state == MORE and at + reader.needed <= part.end
        if needs_more:
            wanted = min(max(CHUNK, reader.needed), LARGE)
        elif state in (MORE, DAMAGED):
            at = _behind_damage(part, at, reader.needed)
        file.pass_by(
            row, *(part.keeps or (part.segment, at)), reader.time or part.summary.last_timestamp
        )
        if state == FULL:
            series.seal()
        if needs_more and was_last:
            return at
    return at


def _read(part: Part, position: int, length: int) -> bytes | None:
    """Bytes of a part; empty where its segment is lost, or shorter than it was; None: the file
    left this disk meanwhile."""
    try:
        data = disk.read_part(part.path, position, length)
    except FileNotFoundError:
        # A segment may have been put into the object store, or dropped. A copy may be thrown away.
        if part.summary.cold or part.summary.dropped:
            return None
        data = b""
    if len(data) == length:
        return data
    if part.summary.cold:
        raise BadCopy(part.path)
    return b""


def _behind_damage(part: Part, at: int, needed: int) -> int:
    """Where the next sound record stands. Raises BadCopy: what the object store has is sound."""
    if part.summary.cold:
        raise BadCopy(part.path)
    length, _ = damaged_stretch(
        part.path, part.stream.incarnation, part.segment, at, part.end, part.end
    )
    return min(part.end, at + (length or needed))
