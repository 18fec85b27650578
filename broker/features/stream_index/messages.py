"""Reads the messages that an index points at, and compares them with the key that is looked for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.features.stream_index.feeding import Stream
from broker.features.stream_index.reading import record_of, value_in
from broker.store.files import disk
from broker.store.keys.rows import Hit
from broker.store.keys.searching import Message, Unread

HEAD = 16 << 10
"""Bytes of a record that are read first: more than all but its body usually has."""

ADJACENT = 32 << 10
"""Records that lie no further apart are read together."""

TOGETHER = 1 << 20
"""Bytes of one such read."""


class Held(NamedTuple):
    """A stream that is searched; `first_segment` is the oldest it holds."""

    stream: Stream
    first_segment: int


class Reader:
    """Verifies hits for one search: `name` of the key, and its value."""

    def __init__(self, streams: Mapping[int, Held], name: str, value: bytes) -> None:
        self._streams = streams
        self._name = name
        self._value = value

    def __call__(self, hits: Sequence[Hit]) -> list[Message | Unread | None]:
        """As `broker.store.keys.searching.Verify`."""
        found: dict[Hit, Message | Unread | None] = {}
        for group in adjacent(hits):
            first, last = group[0], group[-1]
            held = self._streams.get(first.incarnation)
            if held is None or first.segment < held.first_segment:
                continue
            path = held.stream.segment(first.segment)
            end = last.position + min(last.size, HEAD)
            try:
                data = disk.read_part(path, first.position, end - first.position)
                for hit in group:
                    at = hit.position - first.position
                    found[hit] = self._judge(path, hit, data[at : at + min(hit.size, HEAD)])
            except OSError as error:
                for hit in group:
                    found[hit] = Unread(f"{path} cannot be read: {error.strerror}")
        return [found.get(hit) for hit in hits]

    def _judge(self, path: str, hit: Hit, data: bytes) -> Message | None:
        """Whether the record that begins with `data` has the key."""
        place = hit.incarnation, hit.segment, hit.position, hit.size
        record = record_of(data, *place)
        if isinstance(record, int) and record > len(data):
            record = record_of(disk.read_part(path, hit.position, record), *place)
        if isinstance(record, int):
            return None
        offset, time, properties = record
        if value_in(properties, self._name) != self._value:
            return None
        return Message(time, hit.incarnation, offset, hit.segment, hit.position)


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
