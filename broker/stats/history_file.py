"""The files of the long history: one frame a step, in it one record an object that changed.

The layout is in docs/formats/history.md. A record has, of each counter, how much it rose within the
step, and of each level its value at the end and how much it changed. An object without a record did
not change, unless the frame says that objects were left out.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from broker.kernel.checksum import crc32c

MAGIC = b"LVHIST01"
_LENGTHS = struct.Struct("<II")
_FRAME = struct.Struct("<qIHH")
_SECTION = struct.Struct("<HHI")
FRAME_MAX = 1 << 26

Columns = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""By kind of object its counters and its levels."""


class Section(NamedTuple):
    """The records of one kind: keys in ascending order, and `width` values for each."""

    width: int
    keys: array[int]
    values: array[float]

    def of(self, key: int) -> array[float] | None:
        """The record of one object."""
        place = bisect_left(self.keys, key)
        if place == len(self.keys) or self.keys[place] != key:
            return None
        return self.values[place * self.width : (place + 1) * self.width]


class Frame(NamedTuple):
    """One step. `at`: its end, ms since 1970. `covered`: for how many ms of it there are figures.
    `left_out`: how many objects changed and have no record, for want of room."""

    at: int
    covered: int
    left_out: int
    sections: dict[str, Section]


class Header(msgspec.Struct):
    """What a file says of itself: the step in ms, and the columns of each kind."""

    step_ms: int
    columns: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]


def section_of(width: int, records: Mapping[int, bytes]) -> Section:
    """A section with these records."""
    keys = array("Q", sorted(records))
    values = array("f")
    for key in keys:
        values.frombytes(records[key])
    return Section(width, keys, values)


def width_of(columns: tuple[tuple[str, ...], tuple[str, ...]]) -> int:
    """Values of a record: one a counter, two a level."""
    return len(columns[0]) + 2 * len(columns[1])


def encode_header(step_ms: int, columns: Columns) -> bytes:
    """The beginning of a file."""
    told = {"step_ms": step_ms, "columns": {kind: list(pair) for kind, pair in columns.items()}}
    text = msgspec.json.encode(told)
    return MAGIC + _LENGTHS.pack(len(text), crc32c(text)) + text


def encode_frame(frame: Frame, kinds: Iterable[str]) -> bytes:
    """A frame; `kinds` are those of the header, in its order."""
    found = [(place, frame.sections[kind]) for place, kind in enumerate(kinds)
             if kind in frame.sections]  # fmt: skip
    pieces = [_FRAME.pack(frame.at, frame.covered, min(frame.left_out, 0xFFFF), len(found))]
    for place, section in found:
        pieces.append(_SECTION.pack(place, section.width, len(section.keys)))
        pieces.append(section.keys.tobytes())
        pieces.append(section.values.tobytes())
    body = b"".join(pieces)
    return _LENGTHS.pack(len(body), crc32c(body)) + body


class Damaged(Exception):
    """A file that does not begin as one of ours."""


def decode(data: bytes) -> tuple[Header, Iterator[Frame], list[int]]:
    """The header of a file, its frames, and a list that holds, once they are read, the length up to
    which the file is whole. A damaged frame is passed over; a torn one ends it. Raises Damaged."""
    header, at = _header(data)
    whole = [at]
    return header, _frames(data, at, list(header.columns), whole), whole


def _header(data: bytes) -> tuple[Header, int]:
    start = len(MAGIC) + _LENGTHS.size
    if not data.startswith(MAGIC) or len(data) < start:
        raise Damaged("not a history file of version 1")
    length, checksum = _LENGTHS.unpack_from(data, len(MAGIC))
    text = data[start : start + length]
    if len(text) < length or crc32c(text) != checksum:
        raise Damaged("the header of a history file is damaged")
    try:
        return msgspec.json.decode(text, type=Header), start + length
    except msgspec.MsgspecError as error:
        raise Damaged(f"the header of a history file cannot be read: {error}") from None


def _frames(data: bytes, at: int, kinds: list[str], whole: list[int]) -> Iterator[Frame]:
    view = memoryview(data)
    while at + _LENGTHS.size <= len(data):
        length, checksum = _LENGTHS.unpack_from(data, at)
        body = view[at + _LENGTHS.size : at + _LENGTHS.size + length]
        if length > FRAME_MAX or len(body) < length:
            return
        at += _LENGTHS.size + length
        if crc32c(body) != checksum:
            continue
        frame = _decode_frame(body, kinds)
        whole[0] = at
        if frame is not None:
            yield frame


def _decode_frame(body: memoryview, kinds: list[str]) -> Frame | None:
    try:
        end, covered, left_out, count = _FRAME.unpack_from(body, 0)
        at, sections = _FRAME.size, {}
        for _ in range(count):
            kind, width, records = _SECTION.unpack_from(body, at)
            at += _SECTION.size
            keys, values = array("Q"), array("f")
            keys.frombytes(body[at : at + 8 * records])
            at += 8 * records
            values.frombytes(body[at : at + 4 * records * width])
            at += 4 * records * width
            if len(values) != records * width or kind >= len(kinds):
                return None
            sections[kinds[kind]] = Section(width, keys, values)
    except (struct.error, ValueError):
        return None
    return Frame(end, covered, left_out, sections)


Records: TypeAlias = "dict[str, dict[int, bytes]]"
"""By kind of object the record of each key: floats, as bytes, which Python's garbage collector does
not walk over."""


def let_go(records: Records) -> Iterator[None]:
    """Empties the records in short steps."""
    for of_kind in records.values():
        while of_kind:
            for _ in range(min(100, len(of_kind))):
                of_kind.popitem()
            yield None


def merged(frames: Iterable[Frame], columns: Columns) -> Iterator[tuple[Records, int, int] | None]:
    """The records of several frames of a finer step as one, with how much of it is covered and how
    many objects were left out; None until that is done, so that it can be made in short steps.

    What counters rose by and what levels changed by is added up; of the levels the last counts.
    """
    total: Records = {}
    covered = left_out = 0
    for frame in frames:
        covered += frame.covered
        left_out = max(left_out, frame.left_out)
        for kind, section in frame.sections.items():
            if kind not in columns or section.width != width_of(columns[kind]):
                continue
            into = total.setdefault(kind, {})
            counters, levels = (len(names) for names in columns[kind])
            for place, key in enumerate(section.keys):
                record = section.values[place * section.width : (place + 1) * section.width]
                known = into.get(key)
                if known is not None:
                    before = memoryview(known).cast("f")
                    for column in (*range(counters), *range(counters + levels, section.width)):
                        record[column] += before[column]
                into[key] = record.tobytes()
                if place % 50 == 0:
                    yield None
    yield total, covered, left_out


def fitted(
    records: Records, most: int, columns: Columns, first: Iterable[str]
) -> Iterator[tuple[dict[str, Section], int] | None]:
    """Sections with at most `most` bytes and how many objects they leave out; None until that is
    done. The kinds of `first` are kept whole, of the others the objects whose counters rose most.
    """
    first = tuple(first)
    left = most
    ranked = []
    for kind, of_kind in records.items():
        counters, size = len(columns[kind][0]), 8 + 4 * width_of(columns[kind])
        if kind in first:
            left -= size * len(of_kind)
            continue
        for place, (key, record) in enumerate(of_kind.items()):
            ranked.append((-sum(memoryview(record).cast("f")[:counters]), kind, key, size))
            if place % 100 == 0:
                yield None
    ranked.sort()
    kept: Records = {kind: records[kind] for kind in first if kind in records}
    left_out = 0
    for number, (_, kind, key, size) in enumerate(ranked):
        left -= size
        if left < 0:
            left_out = len(ranked) - number
            break
        kept.setdefault(kind, {})[key] = records[kind][key]
        if number % 100 == 0:
            yield None
    sections = {}
    for kind, of_kind in kept.items():
        sections[kind] = section_of(width_of(columns[kind]), of_kind)
        yield None
    yield sections, left_out
