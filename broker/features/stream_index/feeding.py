"""Puts what streams have synced into the index of their vhost. For a thread: it waits for the
disk."""

from __future__ import annotations

from typing import NamedTuple

from broker.features.stream_index.reading import (
    DAMAGED,
    FULL,
    LARGE,
    MORE,
    READ_ALL,
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
    """Synced bytes of one segment. `keeps`: they are read again, and how far the stream is indexed
    stays as it is."""

    stream: Stream
    segment: int
    position: int
    end: int
    keeps: Position | None = None


class Full(Exception):
    """The index takes no more for now; the text says why."""


def feed(series: Series, part: Part, most: int) -> int:
    """Indexes a part, or about `most` bytes of it; returns the position reached. Raises OSError and
    Full: what was read until then is indexed."""
    stream = part.stream
    reader = KeyReader(stream.names)
    path = stream.segment(part.segment)
    at = part.position
    wanted = CHUNK
    while at < min(part.end, part.position + most):
        file = series.current()
        if series.is_stalled:
            raise Full("full files wait to be put in order")
        if file.capacity - file.count < len(stream.names):
            series.seal()
            continue
        row = file.stream(stream.incarnation, (part.segment, at))
        if row < 0:
            raise Full("a file of the index has no place for one more stream")
        asked = min(wanted, part.end - at)
        try:
            data = disk.read_part(path, at, asked)
        except FileNotFoundError:
            # It was removed meanwhile, with its messages.
            data = b""
        state = READ_ALL
        if len(data) == asked:
            state = reader.read(file, row, data, stream.incarnation, part.segment, at)
        at = reader.position if len(data) == asked else part.end
        wanted = CHUNK
        if state == FULL:
            series.seal()
            continue
        if state == MORE and at + reader.needed <= part.end:
            wanted = min(max(CHUNK, reader.needed), LARGE)
        elif state in (MORE, DAMAGED):
            at = _behind_damage(stream, part, at, reader.needed)
        file.pass_by(row, *(part.keeps or (part.segment, at)), reader.time)
    return at


def _behind_damage(stream: Stream, part: Part, at: int, needed: int) -> int:
    """Where the next sound record stands."""
    length, _ = damaged_stretch(
        stream.segment(part.segment), stream.incarnation, part.segment, at, part.end, part.end
    )
    return min(part.end, at + (length or needed))
