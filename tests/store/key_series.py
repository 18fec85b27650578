"""A series of index files beside a list of what is in it, for tests."""

from __future__ import annotations

import collections
import random
from collections.abc import Sequence
from pathlib import Path

from broker.store.files import disk
from broker.store.keys.blobs import Blobs
from broker.store.keys.hashing import hash_of
from broker.store.keys.rows import Hit
from broker.store.keys.searching import Answer, Key, Message, Search, Unread, Wanted
from broker.store.keys.series import Series
from tests.store.directory_blobs import DirectoryBlobs

ALWAYS = (-(2**62), 2**62)
NAME = b"message_id"


class Model:
    """What was indexed: the messages in their order, each with its value."""

    def __init__(self, directory: Path, capacity: int = 64, blobs: Blobs | None = None) -> None:
        self.directory = directory
        self.capacity = capacity
        self.blobs = blobs
        self.rows: list[tuple[bytes, Message]] = []
        self.by_place: dict[tuple[int, int, int], tuple[bytes, Message]] = {}
        self.lengths: collections.Counter[int] = collections.Counter()
        self.series = self.opened()
        self.reads = 0

    def opened(self) -> Series:
        """The series as it is on the disk."""
        self.series = Series(str(self.directory), self.capacity, blobs=self.blobs)
        self.problems = self.series.recover()
        return self.series

    def add(
        self, value: bytes, time: int, incarnation: int = 1, hash: int | None = None
    ) -> Message:
        """A message of 100 bytes behind those of its stream, ten in a segment."""
        message = self.add_unindexed(value, time, incarnation)
        self.index(value, message, hash)
        return message

    def add_unindexed(self, value: bytes, time: int, incarnation: int = 1) -> Message:
        """A message that the index is still to be told of."""
        offset = self.lengths[incarnation]
        self.lengths[incarnation] += 1
        message = Message(time, incarnation, offset, 1 + offset // 10, 8 + offset % 10 * 100)
        self.rows.append((value, message))
        self.by_place[message.incarnation, message.segment, message.position] = value, message
        return message

    def index(self, value: bytes, message: Message, hash: int | None = None) -> None:
        """Puts a message into the series, as the service does."""
        place = message.segment, message.position
        file = self.series.current()
        row = file.stream(message.incarnation, place)
        if hash is None:
            hash = hash_of(file.secret, NAME, value)
        assert file.put(hash, row, *place, 100, message.time)
        file.pass_by(row, message.segment, message.position + 100, message.time)

    def search(
        self,
        value: bytes,
        first_ms: int = ALWAYS[0],
        last_ms: int = ALWAYS[1],
        most: int = 1000,
        streams: set[int] | None = None,
    ) -> Answer:
        def verify(hits: Sequence[Hit]) -> list[Message | Unread | None]:
            self.reads += len(hits)
            found: list[Message | Unread | None] = []
            for hit in hits:
                row = self.by_place.get((hit.incarnation, hit.segment, hit.position))
                found.append(row[1] if row is not None and row[0] == value else None)
            return found

        wanted = Wanted(first_ms, last_ms, most, streams)
        return Search(self.series, Key(NAME, value), wanted, verify).run()

    def brute(
        self,
        value: bytes,
        first_ms: int = ALWAYS[0],
        last_ms: int = ALWAYS[1],
        most: int = 1000,
        streams: set[int] | None = None,
    ) -> list[Message]:
        """What a search has to find, by looking at everything."""
        numbered = [
            (message.time, number, message)
            for number, (each, message) in enumerate(self.rows)
            if each == value
            and first_ms <= message.time <= last_ms
            and (streams is None or message.incarnation in streams)
        ]
        return [message for _, _, message in sorted(numbered, reverse=True)[:most]]

    def upload_next(self) -> bool:
        """The oldest compacted file becomes an object, as the service does; whether there was
        one."""
        file = self.series.next_upload(0)
        if file is None or not isinstance(self.blobs, DirectoryBlobs):
            return False
        name, etag = self.blobs.put(file.head.number, disk.read(file.path))
        return self.series.uploaded(file.head.number, name, etag)

    def compact(self) -> None:
        """All that is written goes into compacted files."""
        self.series.seal()
        while self.series.compact_next():
            pass


def with_objects(directory: Path, capacity: int = 64) -> Model:
    """A series that can upload."""
    return Model(directory / "index", capacity, DirectoryBlobs(str(directory / "objects")))


def play(model: Model, seed: int, steps: int) -> None:
    """A random life of a series; each search is compared with the model."""
    chance = random.Random(seed)
    values = [b"", b"a", b"b", b"\xff\0", b"long" * 16_384, *(b"%d" % n for n in range(20))]
    now = 1_700_000_000_000
    for _ in range(steps):
        kind = chance.random()
        if kind < 0.8:
            # Clocks stand still, go on, and jump by hours or by months, forwards and back.
            now += chance.choice((0, 0, 1, 5, 1000, -1000, 3_600_000, -3_600_000))
            now += chance.choice((0,) * 30 + (2**33, -(2**33)))
            model.add(chance.choice(values), now, chance.randint(1, 3))
        elif kind < 0.85:
            model.series.flush()
        elif kind < 0.88:
            model.series.seal()
        elif kind < 0.92:
            model.series.compact_next()
        elif kind < 0.94 and model.blobs is not None:
            model.upload_next()
        elif kind < 0.95:
            model.series.close()
            model.opened()
        else:
            begin, end = sorted(chance.choice((ALWAYS, (now - 5000, now), (now - 2**34, now))))
            args = (
                chance.choice(values),
                begin,
                end,
                chance.choice((1, 2, 10, 1000)),
                chance.choice((None, {1}, {2, 3})),
            )
            found = model.search(*args)
            assert found.messages == model.brute(*args), args[1:]
            assert found.is_complete, found.reasons
