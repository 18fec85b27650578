"""Reads the messages that an index points at, and compares them with the key that is looked for."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker.features.stream_index.cold_reading import AT_ONCE, ColdReads, NotReadable, Wish
from broker.features.stream_index.feeding import Stream
from broker.features.stream_index.reading import HEADER, may_share, record_of, shared_by, value_in
from broker.store.files import disk
from broker.store.keys.rows import Hit
from broker.store.keys.searching import Message, Unread

HEAD = 16 << 10
"""Bytes of a record that are read first: more than all but its body usually has."""

ADJACENT = 32 << 10
"""Records that lie no further apart are read together."""

TOGETHER = 1 << 20
"""Bytes of one such read."""


Read = Callable[[int, int], bytes]
"""Reads bytes of a segment: position and length."""


class Held(NamedTuple):
    """A stream that is searched; `first_segment` is the oldest it holds, `store` for the loop."""

    stream: Stream
    first_segment: int
    store: Any


Found = dict[Hit, Message | Unread | None]


BAD_COPY = Unread("a copy of a segment in the object store is damaged; it is fetched again")


class Dropped(Exception):
    """The stream does not hold the segment any more."""


class Reader:
    """Verifies hits for one search: `name` of the key, and its value."""

    def __init__(
        self, streams: Mapping[int, Held], name: str, value: bytes, cold: ColdReads
    ) -> None:
        self._streams = streams
        self._name = name
        self._value = value
        self._cold = cold

    def __call__(self, hits: Sequence[Hit]) -> list[Message | Unread | None]:
        """As `broker.store.keys.searching.Verify`."""
        found: Found = {}
        cold: list[list[Hit]] = []
        for group in adjacent(hits):
            held = self._streams.get(group[0].incarnation)
            if held is None or group[0].segment < held.first_segment:
                continue
            path = held.stream.segment(group[0].segment)
            try:
                self._judge_all(group, partial(disk.read_part, path), found)
            except FileNotFoundError:
                cold.append(group)
            except OSError as error:
                for hit in group:
                    found[hit] = Unread(f"{path} cannot be read: {error.strerror}")
        self._judge_cold(cold, found)
        return [found.get(hit) for hit in hits]

    def _judge_all(
        self, group: list[Hit], read: Read, found: Found, no_record: Unread | None = None
    ) -> None:
        """Judges adjacent hits; `no_record` where no sound record stands. Raises what `read`
        does."""
        first = group[0].position
        data = read(first, _end(group) - first)
        for hit in group:
            at = hit.position - first
            found[hit] = self._judge(hit, data[at : at + min(hit.size, HEAD)], read, no_record)

    def _judge(
        self, hit: Hit, data: bytes, read: Read, no_record: Unread | None
    ) -> Message | Unread | None:
        """Whether the record that begins with `data` has the key."""
        place = hit.incarnation, hit.segment, hit.position, hit.size
        record = record_of(data, *place)
        if isinstance(record, int) and record > len(data):
            record = record_of(read(hit.position, record), *place)
        if isinstance(record, int):
            return no_record
        offset, time, properties, back, shared = record
        fields = b""
        if back and may_share(self._name):
            first = max(HEADER, hit.position - back)
            found = shared_by(read(first, back), hit.incarnation, hit.segment, first, shared)
            if found is None:
                return no_record
            fields = found
        if value_in(properties, self._name, fields) != self._value:
            return None
        return Message(time, hit.incarnation, offset, hit.segment, hit.position)

    # -- in the object store -----------------------------------------------------------------------

    def _judge_cold(self, groups: list[list[Hit]], found: Found) -> None:
        """Judges hits whose segments are not on this disk. Some reads are under way at a time."""
        waiting = deque(groups)
        wishes: deque[tuple[list[Hit], Wish]] = deque()
        while waiting or wishes:
            while waiting and len(wishes) < AT_ONCE:
                group = waiting.popleft()
                wishes.append((group, self._ask(group[0], _end(group) - group[0].position)))
            group, wish = wishes.popleft()
            try:
                self._judge_all(group, partial(self._read_cold, group[0], wish), found, BAD_COPY)
            except Dropped:
                continue
            except (NotReadable, OSError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                for hit in group:
                    found.setdefault(hit, Unread(f"messages cannot be read: {why}"))
            if any(found[hit] is BAD_COPY for hit in group):
                wish.throw_away()

    def _ask(self, hit: Hit, length: int) -> Wish:
        store = self._streams[hit.incarnation].store
        return self._cold.ask(store, hit.segment, hit.position, length)

    def _read_cold(self, first: Hit, wish: Wish, position: int, length: int) -> bytes:
        """What was asked for, or more of a record whose head is longer than that. Raises Dropped,
        NotReadable, OSError."""
        if (position, length) != (wish.position, wish.length):
            wish = self._ask(first._replace(position=position), length)
        data = wish.read()
        if data is None:
            raise Dropped
        return data


def _end(group: list[Hit]) -> int:
    """Up to where a group is read at first."""
    return group[-1].position + min(group[-1].size, HEAD)


def adjacent(hits: Sequence[Hit]) -> Iterator[list[Hit]]:
    """The same hits in groups to be read together, each in the order of its positions."""
    for _, each in itertools.groupby(
        sorted(set(hits), key=lambda hit: hit[2:]), key=lambda hit: (hit.incarnation, hit.segment)
    ):
        group: list[Hit] = []
        for hit in each:
            if group and (
                hit.position - group[-1].position > ADJACENT
                or hit.position - group[0].position > TOGETHER
            ):
                yield group
                group = []
            group.append(hit)
        yield group
