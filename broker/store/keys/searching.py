"""Looks for a key through a series of index files: newest first, and no further than needed.

A file is passed over where its time, its streams or its filter say no. The items that are left
only say which messages may have the key: `verify` reads them, and what it does not confirm is no
result. Files of which the arrays are objects are asked for `IN_FLIGHT` at a time. The search ends
as soon as nothing that is left can be newer than the results it has.
"""

from __future__ import annotations

import bisect
import collections
import math
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from broker.store.keys.blobs import BlobError, BlobMissing
from broker.store.keys.candidates import Candidates
from broker.store.keys.hashing import hash_of
from broker.store.keys.places import LocalFile, RemoteFile
from broker.store.keys.rows import Damaged, Hit
from broker.store.keys.series import STATES, IndexFile, Series
from broker.store.keys.unsealed import Unsealed

IN_FLIGHT = 4
"""Requests to the object store at the same time."""

AHEAD = 16
"""Files whose filters are asked before the results of the first of them are known."""

READ_AT_ONCE = 256

TIME_IS_OVER = "the time for a search is over"


class Key(NamedTuple):
    """What is looked for: a name (`message_id`, `correlation_id`, `header:NAME`) and its value."""

    name: bytes
    value: bytes


class Message(NamedTuple):
    """A message that has the key. `time` in ms since 1970."""

    time: int
    incarnation: int
    offset: int
    segment: int
    position: int


class Unread(NamedTuple):
    """A message that could not be read, and why."""

    reason: str


class _Ahead(NamedTuple):
    """A file that is looked at next: where the key's array lies, and, if that is an object, its
    bytes to come."""

    file: IndexFile
    hash: int
    place: tuple[int, int] = (0, 0)
    fetch: Future[bytes] | None = None


_T = TypeVar("_T")

Verify = Callable[[Sequence[Hit]], Sequence[Message | Unread | None]]
"""Reads messages and compares them with the key; None: it is another message, or is removed."""


class Wanted(NamedTuple):
    """`first_ms` and `last_ms` are included; `streams` are incarnations, None all. `most` results;
    at most `reads` messages are read for them."""

    first_ms: int
    last_ms: int
    most: int
    streams: Collection[int] | None = None
    reads: int = 10_000


class Answer:
    """What was found, newest first, and what it took. `files`: that the range of time meets;
    `searched` of them had their items of the hash looked at, `skipped` said by streams, filter and
    slots that there are none, `left` were not needed. `fetched`: requests to the object store,
    `read`: messages that were read."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.files = self.searched = self.skipped = self.left = self.fetched = self.read = 0
        self.reasons: list[str] = []

    @property
    def is_complete(self) -> bool:
        """Whether every message that has the key, or the `most` newest of them, was found."""
        return not self.reasons

    def lacks(self, reason: str) -> None:
        """Notes why the answer may not be complete."""
        if reason not in self.reasons:
            self.reasons.append(reason)


class Search:
    """One search; `time_left` tells the seconds that it may still take, None: without end."""

    def __init__(
        self,
        series: Series,
        key: Key,
        wanted: Wanted,
        verify: Verify,
        time_left: Callable[[], float] | None = None,
    ) -> None:
        if wanted.first_ms > wanted.last_ms:
            raise ValueError("the range of time ends before it begins")
        if wanted.most < 1:
            raise ValueError("at least one result has to be wanted")
        self._series = series
        self._key = key
        self._wanted = wanted
        self._verify = verify
        self._time_left = time_left or (lambda: math.inf)
        self._hashes: dict[bytes, int] = {}
        self._found: list[tuple[tuple[int, int, int], Message]] = []
        """With what they are sorted by, ascending: the newest is the last."""
        self._seen: set[tuple[int, int]] = set()
        self.answer = Answer()

    def run(self) -> Answer:
        """Everything, in the calling thread."""
        files = self._files()
        self.answer.files = len(files)
        self._go_through(files)
        self.answer.messages = [message for _, message in reversed(self._found)]
        return self.answer

    def _files(self) -> list[IndexFile]:
        """Those that the range of time meets, the ones that may have the newest messages first."""
        wanted = self._wanted
        found = []
        for file in self._series.files:
            head = file if isinstance(file, Unsealed) else file.head
            items = file.count if isinstance(file, Unsealed) else file.head.items
            if items and head.first_ms <= wanted.last_ms and head.last_ms >= wanted.first_ms:
                found.append((head.last_ms, head.number, file))
        found.sort(key=lambda row: row[:2], reverse=True)
        return [file for _, _, file in found]

    def _go_through(self, files: list[IndexFile]) -> None:
        """Keeps files under way while the first of them are looked at."""
        under_way: collections.deque[_Ahead] = collections.deque()
        taken = fetching = 0
        while under_way or taken < len(files):
            while taken < len(files) and len(under_way) < AHEAD and fetching < IN_FLIGHT:
                ahead = self._begin(files[taken])
                taken += 1
                if ahead is not None:
                    under_way.append(ahead)
                    fetching += ahead.fetch is not None
            if not under_way:
                continue
            ahead = under_way.popleft()
            has_time = self._time_left() > 0
            if self._has_enough(ahead.file) or not has_time:
                if not has_time:
                    self.answer.lacks(TIME_IS_OVER)
                self.answer.left += 1 + len(under_way) + len(files) - taken
                for each in under_way:
                    if each.fetch is not None:
                        each.fetch.cancel()
                return
            fetching -= ahead.fetch is not None
            candidates = self._candidates(ahead)
            if candidates is not None:
                self.answer.searched += 1
                self._take(ahead.file, candidates)

    # -- one file ----------------------------------------------------------------------------------

    def _begin(self, file: IndexFile) -> _Ahead | None:
        """Asks a file's filter and slots. None: it has nothing."""
        streams = self._wanted.streams
        if streams is not None and not any(
            row.items and row.incarnation in streams for row in self._series.rows_of(file)
        ):
            self.answer.skipped += 1
            return None
        if isinstance(file, Unsealed):
            return _Ahead(file, self._hash(file.secret))
        hash = self._hash(file.head.secret)
        place = self._attempt(file, lambda each: each.place_of(hash))
        if place is None:
            self.answer.skipped += 1
            return None
        if isinstance(file, RemoteFile):
            return _Ahead(file, hash, place, self._fetch(file, place))
        return _Ahead(file, hash, place)

    def _fetch(self, file: RemoteFile, place: tuple[int, int]) -> Future[bytes]:
        self.answer.fetched += 1
        return file.fetch(place)

    def _hash(self, secret: bytes) -> int:
        if secret not in self._hashes:
            self._hashes[secret] = hash_of(secret, *self._key)
        return self._hashes[secret]

    def _candidates(self, ahead: _Ahead) -> Candidates | None:
        """The messages of a file that may have the key; None where it cannot be read."""
        wanted = self._wanted
        limits = wanted.first_ms, wanted.last_ms, wanted.streams
        if isinstance(ahead.file, Unsealed):
            return ahead.file.find(ahead.hash, *limits)

        def read(file: LocalFile) -> Candidates:
            if isinstance(file, RemoteFile):
                known = ahead.fetch if file is ahead.file else None
                coming = known or self._fetch(file, ahead.place)
                left = self._time_left()
                array = coming.result(None if left == math.inf else max(0.0, left))
            else:
                array = file.array(ahead.place)
            return file.find(ahead.hash, array, *limits)

        return self._attempt(ahead.file, read)

    def _attempt(self, file: LocalFile, read: Callable[[LocalFile], _T | None]) -> _T | None:
        """What reading a file gives, also where it goes to its next state meanwhile. None where it
        failed, which is noted."""
        number = file.head.number
        for _ in STATES:
            try:
                return read(file)
            except (FileNotFoundError, BlobMissing) as error:
                now = self._series.file(number)
                if now is None or isinstance(now, Unsealed):
                    return None
                if now is file:
                    self.answer.lacks(f"index file {number} is missing: {error}")
                    return None
                file = now
            except Damaged as error:
                self._series.damaged.add(number)
                self.answer.lacks(f"{error}; it is made again from the streams")
                return None
            except TimeoutError:
                self.answer.lacks(TIME_IS_OVER)
                return None
            except (OSError, BlobError) as error:
                self.answer.lacks(f"index file {number} cannot be read: {error}")
                return None
        return None

    # -- results -----------------------------------------------------------------------------------

    def _has_enough(self, file: IndexFile) -> bool:
        """Whether nothing in this file, nor in those behind it, can be newer than the results."""
        head = file if isinstance(file, Unsealed) else file.head
        return self._is_older((head.last_ms, head.number))

    def _is_older(self, rank: tuple[int, ...]) -> bool:
        """Whether there are as many results as wanted, all newer than something of this rank."""
        most = self._wanted.most
        return len(self._found) >= most and self._found[-most][0] >= rank

    def _take(self, file: IndexFile, candidates: Candidates) -> None:
        """Reads the candidates, as long as they can be among the newest, and keeps what is true."""
        number = file.number if isinstance(file, Unsealed) else file.head.number
        wanted = self._wanted
        taken = 0
        while hits := candidates.take(taken, self._at_once()):
            first = hits[0]
            if first.is_bound and self._is_older((first.time, number, -taken)):
                return
            if self.answer.read >= wanted.reads:
                self.answer.lacks(f"{wanted.reads} messages were read for it, and no more are")
                return
            self.answer.read += len(hits)
            for place, message in enumerate(self._verify(hits), taken):
                if isinstance(message, Unread):
                    self.answer.lacks(message.reason)
                elif message is not None and wanted.first_ms <= message.time <= wanted.last_ms:
                    self._keep((message.time, number, -place), message)
            taken += len(hits)
            if self._time_left() <= 0:
                self.answer.lacks(TIME_IS_OVER)
                return

    def _at_once(self) -> int:
        """As many as may be missing, while that is so; then some more at a time."""
        missing = self._wanted.most - len(self._found)
        return min(missing, READ_AT_ONCE) if missing > 0 else min(self._wanted.most, 16)

    def _keep(self, rank: tuple[int, int, int], message: Message) -> None:
        if (message.incarnation, message.offset) in self._seen:
            return
        bisect.insort(self._found, (rank, message))
        self._seen.add((message.incarnation, message.offset))
        if len(self._found) > self._wanted.most:
            _, dropped = self._found.pop(0)
            self._seen.discard((dropped.incarnation, dropped.offset))
