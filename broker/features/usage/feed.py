"""Turns the broker's counters into the lines of the usage feed, a few objects at a time.

The broker counts anyway; the feed only takes differences. A round begins when an interval
(`interval_ms`) of the broker's clock ends and is a generator: the server steps it between turns of
its loop, each step well below a millisecond. A step yields None, or a function that waits for the
disk, which the server calls in a thread before the next step.

Every difference is taken once and encoded at once. Lines that could not be appended wait, and no
round begins before they are written, so that a line is in the feed once or, if the process is
killed, not at all: the next start marks that time as a gap.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from broker.features.interface import Feature
from broker.kernel import clock
from broker.kernel.reached import Reached
from broker.kernel.through import Through

from .accounts import Accounts, Round, Sum, identity
from .feed_file import HOUR_MS, Disk, FeedFile
from .records import SCHEMA_VERSION

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.vhosts.vhost import VHost
    from broker.wire.connection import Connection

log = logging.getLogger(__name__)

# Objects that a step checks, or lines that it writes: 40 take about 0.2 ms, encoding included.
LOOKS_PER_STEP = 100
LINES_PER_STEP = 40
QUEUES_PER_STEP = 100
CONNECTIONS_PER_STEP = 200
FREED_PER_STEP = 20

STANDING_MS = 60_000
"""A queue that holds something and stands still is written this often."""

CLIENTS_MAX = 1_000
"""Sums of one round, by vhost, user and client library; further libraries are added up as `other`.
"""

# Lines of closed connections and deleted queues wait for the round's end; past this they are
# dropped, and the feed says so.
WAITING_LINES_MAX = 100_000

Key = tuple[str, str, str, str]


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


Step = DiskCall | None


class Source(Protocol):
    """What the feed reads of the broker: its vhosts with their queues and exchanges, and its
    connections.
    """

    @property
    def vhosts(self) -> dict[str, Any]: ...
    @property
    def connections(self) -> dict[int, Any]: ...


class Pending:
    """The lines of one round that are not in the file yet."""

    def __init__(self, since_ms: int, until_ms: int) -> None:
        self.since_ms = since_ms
        self.until_ms = until_ms
        self.parts: list[bytes] = []


class Feed(Feature):
    """The usage feed of one broker. `now_ms` is always the broker's own wall clock, in UTC
    milliseconds. `run` gives the number of its start.
    """

    def __init__(
        self,
        source: Source,
        disk: Disk,
        directory: str,
        interval_ms: int = 10_000,
        *,
        run: Callable[[], int] = lambda: 1,
    ) -> None:
        self._source = source
        self._run_number = run
        self._file = FeedFile(disk, directory)
        self._interval_ms = interval_ms
        self._since_ms = 0
        self._stood_ms = 0
        self._encoder = msgspec.json.Encoder()
        self._accounts = Accounts()
        self._sums: dict[Key, Sum] = {}
        self._waiting: deque[dict[str, Any]] = deque()
        self._dropped = 0
        self._dropped_since = 0
        self._pending: Pending | None = None
        self._is_failing = False
        # The round under way, and what ended before it came by.
        self._round: Iterator[Step] | None = None
        self._under_way: DiskCall | None = None
        self._ended = Reached()

    # -- what the broker tells ---------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Take up or close what an earlier process left, and mark what that one did not write.
        Waits for the disk; call before listening. Raises OSError.
        """
        self._since_ms = self._stood_ms = now_ms
        self._accounts.head = {
            "v": SCHEMA_VERSION,
            "kind": "",
            "since": 0,
            "until": 0,
            "run": self._run_number(),
        }
        ending = self._file.recover(now_ms)
        lines = [self._event("start", now_ms, now_ms)]
        if ending is not None and not ending.is_clean:
            lines.append(
                self._event("gap", ending.until, max(now_ms, ending.until))
                | {"reason": "unclean", "standing_since": ending.until - STANDING_MS}
            )
        self._pending = Pending(now_ms, now_ms)
        self._pending.parts.append(self._encoder.encode_lines(lines))
        for vhost in self._source.vhosts.values():
            for queue in vhost.queues.values():
                self._accounts.begin(queue, now_ms)
        self._run(self._write(self._pending))

    def queue_configured(self, vhost: VHost, queue: MessageQueue) -> None:
        """A queue is there: it notes how long its messages take."""
        queue.is_timed = True

    def tick(self, now_ms: int) -> Iterator[Step] | None:
        """Called about once a second: the round to step through if one is due, else None."""
        if self._round is not None:
            return None
        if self._pending is not None:
            self._round = self._again(self._pending)
        elif now_ms // self._interval_ms != self._since_ms // self._interval_ms:
            self._round = self._new_round(now_ms)
        return self._round

    def stop(self, now_ms: int) -> None:
        """Finish the round under way, write a last one, and say that this is all. Waits for the
        disk."""
        if self._under_way is not None:
            self._under_way()
        self._run(self._round or ())
        if self._pending is not None:
            self._run(self._write(self._pending))
        if self._pending is None:
            self._end_transient(now_ms)
            self._run(self._new_round(now_ms, ends=True))

    def _end_transient(self, now_ms: int) -> None:
        """Queues that are not durable go with the broker. Their lines say so: what they held would
        stand in reports for days as if it could still be consumed."""
        for vhost in self._source.vhosts.values():
            for queue in vhost.queues.values():
                if not queue.durable:
                    self._ended.add(queue)
                    self.queue_deleted(queue, now_ms)

    def queue_deleted(self, queue: MessageQueue, now_ms: int) -> None:
        """Write what a queue did since the last round: it will not be there at the next."""
        self._end(queue, self._accounts.queue(queue, self._since_ms, now_ms, True, True))

    def exchange_deleted(self, vhost: VHost, exchange: BoundExchange) -> None:
        """The same of an exchange."""
        now_ms = max(self._since_ms, clock.now())
        line = self._accounts.exchange(vhost.name, exchange, self._since_ms, now_ms, True)
        self._end(exchange, line)

    def connection_closed(self, connection: Connection, now_ms: int) -> None:
        """Write what a connection did since its last line; its user's sum keeps it, too."""
        sums = Round(self._sums, self._sum, now_ms)
        self._end(connection, self._accounts.connection(connection, sums, True))

    def used(self, vhost: VHost, user: str, client: str, counts: Mapping[str, int]) -> None:
        """What a user did over no connection is in the line of the user and the client."""
        self._sum(self._sums, (vhost.name, user, client, "")).add(counts)

    def _end(self, thing: Any, line: dict[str, Any] | None) -> None:
        if self._round is not None:
            self._ended.add(thing)
        if line is None:
            return
        if len(self._waiting) < WAITING_LINES_MAX:
            self._waiting.append(line)
        else:
            self._dropped_since = self._dropped_since or self._since_ms
            self._dropped += 1

    # -- rounds ------------------------------------------------------------------------------------

    @staticmethod
    def _run(steps: Iterable[Step]) -> None:
        for step in steps:
            if step is not None:
                step()

    def _new_round(self, now_ms: int, *, ends: bool = False) -> Iterator[Step]:
        """One round: takes what was counted since the last one, then writes it."""
        pending = Pending(self._since_ms, now_ms)
        try:
            try:
                for records in self._steps(pending.since_ms, now_ms):
                    pending.parts.append(self._encode(records))
                    yield None
            except Exception:
                # What was taken and not encoded is lost; the rest continues.
                log.exception("a round of the usage feed failed")
                pending.parts.append(
                    self._encode(
                        [self._event("gap", pending.since_ms, now_ms) | {"reason": "failed"}]
                    )
                )
            last = [self._event("round", pending.since_ms, now_ms)]
            if ends:
                last.append(self._event("stop", now_ms, now_ms))
            pending.parts.append(self._encode(last))
            self._since_ms = now_ms
            self._pending = pending
            yield from self._write(pending)
            yield from self._forget_ended()
        finally:
            self._round_over()

    def _forget_ended(self) -> Iterator[Step]:
        """What ended during the round is let go of, some in a step: they may be a client's 250,000
        queues, to which nothing else refers any more."""
        are_left = True
        while are_left:
            are_left = self._ended.let_some_go(FREED_PER_STEP)
            yield None

    def _again(self, pending: Pending) -> Iterator[Step]:
        """Writes what the last round could not."""
        try:
            yield from self._write(pending)
        finally:
            self._round_over()

    def _round_over(self) -> None:
        self._round = None
        self._under_way = None
        self._ended = Reached()

    def _write(self, pending: Pending) -> Iterator[Step]:
        # Joined in the thread too: with many queues this is megabytes.
        written = DiskCall(
            lambda: self._file.append(b"".join(pending.parts), pending.since_ms, pending.until_ms)
        )
        self._under_way = written
        yield written
        if written.error is not None:
            if not self._is_failing:
                log.error("usage feed: %s; it is tried again every second", written.error)
            self._is_failing = True
            return
        self._pending = None
        self._is_failing = False
        now_ms = pending.until_ms
        first = self._encode([self._event("round", now_ms, now_ms)])
        rolled = DiskCall(lambda: self._file.roll(now_ms, first))
        self._under_way = rolled
        yield rolled
        if rolled.error is not None:
            log.error("usage feed: the hour's file stays open: %s", rolled.error)

    def _steps(self, since_ms: int, now_ms: int) -> Iterator[list[dict[str, Any]]]:
        """The round's lines in small lists."""
        is_last = now_ms // HOUR_MS != since_ms // HOUR_MS
        stands = is_last or now_ms - self._stood_ms >= STANDING_MS
        if stands:
            self._stood_ms = now_ms
        waiting, self._waiting = self._waiting, deque()
        sums, self._sums = self._sums, {}
        while waiting:
            # None is kept: to free 100,000 at once takes 20 ms.
            yield [waiting.popleft() for _ in range(min(len(waiting), LINES_PER_STEP))]
        if self._dropped:
            log.error("usage feed: %d lines were dropped: too many in one round", self._dropped)
            gap = self._event("gap", self._dropped_since, now_ms)
            yield [gap | {"reason": "dropped", "lines": self._dropped}]
            self._dropped = self._dropped_since = 0
        for vhost in list(self._source.vhosts.values()):
            all_queues = Through(vhost.queues.values())
            while queues := all_queues.piece(QUEUES_PER_STEP):
                at = 0
                while at < len(queues):
                    lines: list[dict[str, Any]] = []
                    at = self._accounts.queues(
                        queues, at, self._ended, since_ms, now_ms, stands, lines
                    )
                    yield lines
            name = vhost.name
            yield from self._in_steps(
                Through(vhost.exchanges.values()),
                lambda exchange, name=name: self._accounts.exchange(  # type: ignore[misc]
                    name, exchange, since_ms, now_ms, False
                ),
            )
        these = Round(sums, self._sum, now_ms, stands=stands, always=is_last)
        all_connections = Through(self._source.connections.values())
        while connections := all_connections.piece(CONNECTIONS_PER_STEP):
            at = 0
            while at < len(connections):
                lines = []
                at = self._accounts.connections(connections, at, self._ended, these, lines)
                yield lines
        for some in _slices(list(sums.items())):
            yield [
                self._event("user", since_ms, now_ms) | identity(key) | total.columns()
                for key, total in some
            ]

    def _in_steps(
        self, things: Iterable[Any], line_of: Callable[[Any], dict[str, Any] | None]
    ) -> Iterator[list[dict[str, Any]]]:
        lines: list[dict[str, Any]] = []
        looks = 0
        for thing in things:
            if thing in self._ended:
                continue
            looks += 1
            line = line_of(thing)
            if line is not None:
                lines.append(line)
            if len(lines) >= LINES_PER_STEP or looks >= LOOKS_PER_STEP:
                yield lines
                lines = []
                looks = 0
        if lines:
            yield lines

    @staticmethod
    def _sum(sums: dict[Key, Sum], key: Key) -> Sum:
        """The sum of a user and client library; that of `other` libraries where there are many."""
        total = sums.get(key)
        if total is None:
            if len(sums) >= CLIENTS_MAX:
                key = (*key[:2], "other", "")
                total = sums.get(key)
            if total is None:
                total = sums[key] = Sum()
        return total

    def _event(self, kind: str, since_ms: int, until_ms: int) -> dict[str, Any]:
        return self._accounts.head | {"kind": kind, "since": since_ms, "until": until_ms}

    def _encode(self, records: list[dict[str, Any]]) -> bytes:
        try:
            return self._encoder.encode_lines(records)
        except UnicodeEncodeError:
            return self._encoder.encode_lines([_encodable(record) for record in records])


def _slices(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), LINES_PER_STEP):
        yield items[start : start + LINES_PER_STEP]


def _encodable(record: dict[str, Any]) -> dict[str, Any]:
    """The record with octets that are no UTF-8 replaced: a client names a queue as it likes."""
    return {key: _utf8(value) if isinstance(value, str) else value for key, value in record.items()}


def _utf8(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
