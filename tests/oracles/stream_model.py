"""A stream as lists: segments of messages, and the places of consumers, in the plainest words."""

from dataclasses import dataclass, field
from typing import Any

SEGMENT_HEADER = 8
RECORD_HEAD = 24
OFFSET = 8
EMPTY_PROPERTIES = 2


@dataclass(frozen=True)
class Entry:
    """One message of a stream."""

    offset: int
    body: bytes
    headers: dict[str, Any]


@dataclass
class Segment:
    """Messages that go together, and how long their file is."""

    entries: list[Entry] = field(default_factory=list)
    length: int = SEGMENT_HEADER
    begun: bool = False


@dataclass
class StreamModel:
    """What a stream keeps; limits of -1 are none."""

    segment_size: int
    max_length: int = -1
    max_bytes: int = -1
    segments: list[Segment] = field(default_factory=list)
    next_offset: int = 0
    active: Segment | None = None
    places: dict[str, int] = field(default_factory=dict)

    @property
    def entries(self) -> list[Entry]:
        """Every message that is kept, in order."""
        return [entry for segment in self.segments for entry in segment.entries]

    @property
    def first_offset(self) -> int:
        """Of the oldest message, or the one to come."""
        entries = self.entries
        return entries[0].offset if entries else self.next_offset

    def publish(self, body: bytes, headers: dict[str, Any], names: int, properties: int) -> None:
        """A message at the end. `names` is the length of exchange and routing key, `properties`
        that of its property list."""
        self._append(RECORD_HEAD + names + OFFSET + properties + len(body)).entries.append(
            Entry(self.next_offset, body, headers)
        )
        self.next_offset += 1

    def _append(self, length: int) -> Segment:
        full = self.active is not None and self.active.length + length > self.segment_size
        if self.active is None or (full and self.active.begun):
            self.active = Segment()
            self.segments.append(self.active)
        self.active.length += length
        self.active.begun = True
        return self.active

    def retain(self) -> None:
        """The oldest segments go while there is more than the limits; never the last one."""
        while len(self.segments) > 1:
            entries = self.entries
            size = sum(len(entry.body) for entry in entries)
            if not (0 <= self.max_length < len(entries) or 0 <= self.max_bytes < size):
                break
            del self.segments[0]

    def purge(self) -> int:
        """Everything goes, and a segment begins with a mark."""
        count = len(self.entries)
        if count:
            self.segments.clear()
            self.active = None
            self._append(RECORD_HEAD + OFFSET + EMPTY_PROPERTIES)
        return count

    def restart(self) -> None:
        """What comes now comes in a segment of its own."""
        self.active = None
        self.segments = [segment for segment in self.segments if segment.begun]

    def start_of(self, wanted: Any) -> int:
        """The lowest offset that a reader gets which asks for this."""
        if wanted == "first":
            return self.first_offset
        if wanted is None or wanted == "next":
            return self.next_offset
        if wanted == "last":
            wanted = -1
        assert isinstance(wanted, int)
        if wanted < 0:
            wanted += self.next_offset
        return max(self.first_offset, min(wanted, self.next_offset))

    def read(self, start: int, arguments: dict[str, Any]) -> list[Entry]:
        """What a reader gets from an offset on, with these arguments of basic.consume."""
        return [
            entry
            for entry in self.entries
            if entry.offset >= start and wants(arguments, entry.headers)
        ]


def wants(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    """Whether a consumer with these arguments wants a message with these headers."""
    values, others = _conditions(arguments.get("x-stream-filter"))
    if not values and not others:
        return True
    own = headers.get("x-stream-filter-value")
    if not isinstance(own, str):
        if arguments.get("x-stream-match-unfiltered"):
            return True
        held: set[str] = set()
    else:
        held = {own, *own.split(",")}
    has_values = [value in held for value in values]
    has_others = [
        name in headers and _text(headers[name]) == _text(value) for name, value in others
    ]
    match = arguments.get("x-filter-match-type")
    if match == "any":
        return any(has_values + has_others)
    if match == "all":
        return all(has_values + has_others)
    return (any(has_values) or not values) and all(has_others)


def _conditions(asked: Any) -> tuple[list[str], list[tuple[str, Any]]]:
    if asked is None:
        return [], []
    if isinstance(asked, str):
        return [part.strip() for part in asked.split(",")], []
    if isinstance(asked, dict):
        return [], list(asked.items())
    parts = [_conditions(each) for each in asked]
    return [value for values, _ in parts for value in values], [
        other for _, others in parts for other in others
    ]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
