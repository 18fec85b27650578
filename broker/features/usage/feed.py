"""Turns the broker's counters into the lines of the usage feed, a few queues at a time.

The broker counts anyway, for its statistics; the feed only takes differences, so a message costs
nothing more. A round begins when a minute (`interval_ms`) of the broker's clock ends and is a
generator: the server steps it between turns of its loop, each step well below a millisecond. A step
yields None, or a function that waits for the disk, which the server calls in a thread before the
next step.

What was counted since the last round is lost when the process is killed; what an earlier append
returned is not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Protocol, TypeVar

import msgspec

from broker.features.joints import Feature

from .feed_file import HOUR_MS, Disk, FeedFile
from .records import (
    CONNECTION_COUNTERS,
    EXCHANGE_COUNTERS,
    QUEUE_COUNTERS,
    QUEUE_LEVELS,
    difference,
    line,
)

log = logging.getLogger(__name__)

# 50 queues take about 0.2 ms: counters, difference and encoding together.
OBJECTS_PER_STEP = 50

# Lines of closed connections and deleted queues wait for the round's end; past this the oldest are
# dropped, loudly.
WAITING_LINES_MAX = 100_000

Key = tuple[str, int]
Counted = dict[Key, tuple[int, ...]]
Item = TypeVar("Item")


class DiskCall:
    """A function that waits for the disk, to be called in a thread; its OSError is kept.

    It runs once, however often and from wherever it is called: a broker that stops calls it again,
    because it cannot know whether the thread came to it.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._called = False
        self.error: OSError | None = None

    def __call__(self) -> None:
        with self._lock:
            if self._called:
                return
            self._called = True
            try:
                self._function()
            except OSError as error:
                self.error = error


_COUNTERS_OF = itemgetter(*QUEUE_COUNTERS)
_NOTHING = (0,) * len(QUEUE_COUNTERS)
_EMPTY = (0,) * len(QUEUE_LEVELS)

Step = DiskCall | None


class Source(Protocol):
    """What the feed reads of the broker: its vhosts with their queues and exchanges, and its
    connections.
    """

    @property
    def vhosts(self) -> dict[str, Any]: ...
    @property
    def connections(self) -> dict[int, Any]: ...


class Feed(Feature):
    """The usage feed of one broker. `now_ms` is always the broker's own wall clock, in UTC
    milliseconds.
    """

    def __init__(
        self, source: Source, disk: Disk, directory: str, interval_ms: int = 60_000
    ) -> None:
        self._source = source
        self._file = FeedFile(disk, directory)
        self._interval_ms = interval_ms
        self._since_ms = 0
        self._levels_hour = -1
        self._encoder = msgspec.json.Encoder()
        # Counters and levels as they were when last written; rows that are all zero are left out of
        # both.
        self._counted: Counted = {}
        self._levels: Counted = {}
        self._waiting: list[dict[str, Any]] = []
        self._dropped = 0
        # The round under way: what it has already taken, and what ended before it came by.
        self._round: Iterator[Step] | None = None
        self._under_way: DiskCall | None = None
        self._taken: Counted = {}
        self._ended: set[Key] = set()

    def start(self, now_ms: int) -> None:
        """Take up or close what an earlier process left. Waits for the disk; call before listening.
        Raises OSError.
        """
        self._since_ms = now_ms
        self._file.recover(now_ms)

    def tick(self, now_ms: int) -> Iterator[Step] | None:
        """Called about once a second: the round to step through if one is due, else None."""
        if (
            self._round is not None
            or now_ms // self._interval_ms == self._since_ms // self._interval_ms
        ):
            return None
        self._round = self._new_round(now_ms)
        return self._round

    def stop(self, now_ms: int) -> None:
        """Finish the round under way and write a last one. Waits for the disk."""
        if self._under_way is not None:
            self._under_way()
        for round_ in (self._round, self._new_round(now_ms)):
            for step in round_ or ():
                if step is not None:
                    step()

    def queue_deleted(self, queue: Any, now_ms: int) -> None:
        """Write what a queue did since the last round: it will not be there at the next."""
        now = _queue_now(queue)
        risen = difference(now, self._end(("queue", queue.incarnation)))
        if any(risen):
            self._wait(
                line(
                    "queue",
                    self._since_ms,
                    now_ms,
                    _queue_identity(queue),
                    _named(QUEUE_COUNTERS, risen) | {"messages_peak": queue.take_most()},
                )
            )

    def connection_closed(self, connection: Any, now_ms: int) -> None:
        """Write what a connection did since the last round, and one line about the whole of it."""
        now = _connection_now(connection)
        risen = difference(now, self._end(("connection", connection.id)))
        identity = _user_identity(connection)
        if any(risen):
            self._wait(
                line("user", self._since_ms, now_ms, identity, _named(CONNECTION_COUNTERS, risen))
            )
        whole = line(
            "connection",
            connection.connected_at_ms,
            now_ms,
            identity,
            _named(CONNECTION_COUNTERS, now),
        )
        self._wait(whole | {"name": connection.name})

    def _end(self, key: Key) -> tuple[int, ...] | None:
        """Forget an object that ends: the counts of it that lines already hold."""
        before = self._counted.pop(key, None)
        if self._round is not None:
            self._ended.add(key)
        return self._taken.pop(key, before)

    def _wait(self, record: dict[str, Any]) -> None:
        if len(self._waiting) < WAITING_LINES_MAX:
            self._waiting.append(record)
        else:
            self._dropped += 1

    def _new_round(self, now_ms: int) -> Iterator[Step]:
        """One round: difference and encode everything, append it at once, and only then forget the
        old counts.
        """
        since_ms = self._since_ms
        levels: Counted = {}
        encoded: list[bytes] = []
        waiting, self._waiting = self._waiting, []
        try:
            for records in self._steps(since_ms, now_ms, waiting, levels):
                try:
                    encoded.append(self._encoder.encode_lines(records))
                except UnicodeEncodeError:
                    encoded.append(
                        self._encoder.encode_lines([_encodable(record) for record in records])
                    )
                yield None
            # Joined in the thread too: with many queues this is megabytes.
            written = DiskCall(lambda: self._file.append(b"".join(encoded), since_ms, now_ms))
            self._under_way = written
            yield written
            if written.error is not None:
                # Nothing is forgotten: the next round counts this interval too.
                log.error("usage feed: %s; the next round tries again", written.error)
                self._waiting = waiting + self._waiting
                return
            self._counted, self._levels, self._since_ms = self._taken, levels, now_ms
            self._levels_hour = since_ms // HOUR_MS
            if self._dropped:
                log.error("usage feed: %d lines were dropped: too many in one round", self._dropped)
                self._dropped = 0
            rolled = DiskCall(lambda: self._file.roll(now_ms))
            self._under_way = rolled
            yield rolled
            if rolled.error is not None:
                log.error("usage feed: the hour's file stays open: %s", rolled.error)
        finally:
            self._round = None
            self._under_way = None
            self._taken = {}
            self._ended = set()

    def _steps(
        self, since_ms: int, now_ms: int, waiting: list[dict[str, Any]], levels: Counted
    ) -> Iterator[list[dict[str, Any]]]:
        """The round's lines in small lists; fills `_taken` and `levels`."""
        yield from _slices(waiting)
        new_hour = since_ms // HOUR_MS != self._levels_hour
        for vhost in list(self._source.vhosts.values()):
            for queues in _slices(list(vhost.queues.values())):
                records = []
                for queue in queues:
                    counters = self._queue_counters(queue, new_hour, levels)
                    if counters:
                        records.append(
                            line("queue", since_ms, now_ms, _queue_identity(queue), counters)
                        )
                yield records
            for exchanges in _slices(list(vhost.exchanges.values())):
                yield [
                    line(
                        "exchange",
                        since_ms,
                        now_ms,
                        {"vhost": vhost.name, "name": exchange.name},
                        counters,
                    )
                    for exchange in exchanges
                    if (counters := self._exchange_counters(vhost, exchange))
                ]
        yield from self._user_steps(since_ms, now_ms)

    def _queue_counters(self, queue: Any, new_hour: bool, levels: Counted) -> dict[str, int]:
        key = ("queue", queue.incarnation)
        if key in self._ended:
            return {}
        now = _queue_now(queue)
        level = (
            queue.messages_ready + queue.messages_unacknowledged,
            queue.message_bytes_ready + queue.message_bytes_unacknowledged,
            queue.consumer_count,
        )
        if now != _NOTHING:
            self._taken[key] = now
        if level != _EMPTY:
            levels[key] = level
        before = self._counted.get(key, _NOTHING)
        # A level that stands still is said once an hour, so that every hour's file can be read
        # alone. Most queues of many are idle: they end here.
        stands_still = now == before and level == self._levels.get(key, _EMPTY)
        if stands_still and (level == _EMPTY or not new_hour):
            return {}
        risen = difference(now, before)
        return (
            _named(QUEUE_COUNTERS, risen)
            | _named(QUEUE_LEVELS, level)
            | {"messages_peak": queue.take_most()}
        )

    def _exchange_counters(self, vhost: Any, exchange: Any) -> dict[str, int]:
        key = (f"exchange {vhost.name}\0{exchange.name}", vhost.incarnation)
        now = tuple(getattr(exchange, name) for name in EXCHANGE_COUNTERS)
        risen = difference(now, self._counted.get(key))
        if any(now):
            self._taken[key] = now
        return _named(EXCHANGE_COUNTERS, risen) if any(risen) else {}

    def _user_steps(self, since_ms: int, now_ms: int) -> Iterator[list[dict[str, Any]]]:
        """Connections that live on, added up per user and vhost."""
        sums: dict[tuple[str, str], list[int]] = {}
        for connections in _slices(list(self._source.connections.values())):
            for connection in connections:
                key = ("connection", connection.id)
                if key in self._ended:
                    continue
                now = _connection_now(connection)
                self._taken[key] = now
                identity = _user_identity(connection)
                total = sums.setdefault(
                    (identity["user"], identity["vhost"]), [0] * (len(CONNECTION_COUNTERS) + 1)
                )
                total[-1] += 1
                for index, rise in enumerate(difference(now, self._counted.get(key))):
                    total[index] += rise
            yield []
        names = (*CONNECTION_COUNTERS, "connections")
        for some in _slices(list(sums.items())):
            yield [
                line("user", since_ms, now_ms, {"user": user, "vhost": vhost}, _named(names, total))
                for (user, vhost), total in some
            ]


def _slices(items: list[Item]) -> Iterator[list[Item]]:
    for start in range(0, len(items), OBJECTS_PER_STEP):
        yield items[start : start + OBJECTS_PER_STEP]


def _named(names: tuple[str, ...], values: Iterable[int]) -> dict[str, int]:
    return dict(zip(names, values, strict=True))


def _queue_identity(queue: Any) -> dict[str, str]:
    return {"vhost": queue.vhost_name, "name": queue.name}


def _user_identity(connection: Any) -> dict[str, str]:
    user = connection.user
    vhost = connection.vhost
    return {
        "user": getattr(user, "name", user) or "",
        "vhost": getattr(vhost, "name", vhost) or "",
    }


def _queue_now(queue: Any) -> tuple[int, ...]:
    counters = queue.counters()
    counters["publish_bytes"], counters["deliver_bytes"] = queue.bytes_in, queue.bytes_out
    now: tuple[int, ...] = _COUNTERS_OF(counters)
    return now


def _connection_now(connection: Any) -> tuple[int, ...]:
    return tuple(getattr(connection, name) for name in CONNECTION_COUNTERS)


def _encodable(record: dict[str, Any]) -> dict[str, Any]:
    """The record with octets that are no UTF-8 replaced: a client names a queue as it likes."""
    return {key: _utf8(value) if isinstance(value, str) else value for key, value in record.items()}


def _utf8(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
