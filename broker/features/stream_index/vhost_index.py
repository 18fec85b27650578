"""The index of one vhost: its series of files, the streams that are indexed in it, and the work
that is to be done for both.

The loop knows what is synced and hands out steps; a thread carries out one step at a time. The loop
asks the series only while no step is under way. A search runs beside them, in a thread of its own.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from broker.features.stream_index.cold_reading import Ahead, ColdReads
from broker.features.stream_index.feeding import BadCopy, Full, Part, Stream, feed
from broker.features.stream_index.messages import Held, Reader
from broker.features.stream_index.uploads import Upload, Uploads
from broker.kernel import clock
from broker.store.files import disk
from broker.store.keys.searching import Answer, Key, Search, Wanted
from broker.store.keys.series import Position, Series

log = logging.getLogger("leveret.stream_index")

STEP_BYTES = 16 << 20
"""Bytes of segments that one step reads, of all streams together."""

STEP_SEGMENTS = 16
"""Segments of one stream that one step looks at."""

EXPIRY_S = 10.0
"""How often files are looked for that no stream needs."""

KEYS = "keys.json"
"""From when on each stream is indexed by each key: ms since 1970, by incarnation and name."""


class Work(NamedTuple):
    """What one step does. `gone`: streams that are deleted; `held`: the first segments of all by
    incarnation, where it is time to look for files that no stream needs."""

    parts: list[Part]
    streams: list[Stream]
    gone: set[int]
    held: dict[int, int] | None
    uploads: list[Upload]
    changes: int


class VHostIndex:
    """`directory` is the vhost's `index`; `objects` its objects in the object store
    (`features/tiers/index_objects.py`), None: there is no store."""

    def __init__(self, name: str, directory: str, host: Any, objects: Any = None) -> None:
        self.name = name
        self.directory = directory
        self._host = host
        self.series = Series(directory, host.config.stream_index_items, blobs=objects)
        self.figures = self.series.figures()
        """Files, items and bytes by state, as the last step left them."""
        self._failure = ""
        """Why the last step failed."""
        self._streams: dict[int, tuple[Any, Stream]] = {}
        self._ahead: dict[tuple[int, bool], Ahead] = {}
        """Streams that are read in the object store, for the first time or to fill a gap."""
        self._bad_copies: list[Part] = []
        self._uploads = Uploads(self.series, objects)
        self._held: dict[int, Any] = {}
        self._gone: set[int] = set()
        self._since: dict[str, dict[str, int]] = {}
        self._is_open = self._is_busy = self._is_closed = False
        self._changes = 1
        self._noted = 0
        self._expiry = 0.0
        self._step = threading.Lock()

    # -- what is indexed (on the loop) -------------------------------------------------------------

    def configure(self, queue: Any, names: tuple[str, ...]) -> None:
        """A stream of the vhost is there, and is indexed by these keys, if any."""
        self._changes += 1
        self._held[queue.incarnation] = queue
        self._streams.pop(queue.incarnation, None)
        self._read_no_further(queue.incarnation)
        if names:
            stream = Stream(queue.incarnation, queue.store.directory, names)
            self._streams[queue.incarnation] = queue, stream

    def forget(self, queue: Any) -> None:
        """A stream is deleted."""
        self._streams.pop(queue.incarnation, None)
        self._read_no_further(queue.incarnation)
        if self._held.pop(queue.incarnation, None) is not None:
            self._gone.add(queue.incarnation)

    def _read_no_further(self, incarnation: int) -> None:
        for is_gap in (False, True):
            self._ahead.pop((incarnation, is_gap), None)

    @property
    def problem(self) -> str:
        """Why the index does not go on; empty: it does."""
        problems = (self._failure, *(each.problem for each in self._ahead.values()))
        return next((each for each in problems if each), "")

    def names(self, incarnation: int) -> tuple[str, ...]:
        """The keys that a stream is indexed by."""
        row = self._streams.get(incarnation)
        return row[1].names if row else ()

    @property
    def streams(self) -> int:
        """How many are indexed."""
        return len(self._streams)

    def behind(self, incarnation: int, end: Position) -> int:
        """Bytes of a stream that are not indexed, up to (segment, position), in its next
        segments."""
        row = self._streams.get(incarnation)
        return sum(
            (end[1] if part.segment == end[0] else part.end) - part.position
            for part in (self._parts_of(*row) if row else ())
            if (part.segment, part.position) < end
        )

    def whole_from(self, incarnation: int, name: str) -> int | None:
        """From which time on (ms since 1970) a stream's messages are indexed by a key; None: all
        that it holds are."""
        return self._since.get(f"{incarnation:016x}", {}).get(name) or None

    def shown(self, incarnation: int) -> dict[str, Any]:
        """What a stream's page shows: its keys, why the index does not go on, if so, and the files
        of the vhost by state."""
        return {
            "keys": list(self.names(incarnation)),
            "problem": self.problem,
            "files": self.figures,
        }

    @property
    def is_changed(self) -> bool:
        """Whether keys were named that are not noted yet."""
        return self._noted != self._changes

    @property
    def is_whole(self) -> bool:
        """Whether no part of the index is being made again."""
        return not (self.series.gaps or self.series.damaged)

    # -- steps -------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a step is under way."""
        return self._is_busy

    def next_step(self, least: int = 0) -> Callable[[], None] | None:
        """What is to be done next, for a thread; None: nothing, less than `least` bytes to read, or
        a step is under way. On the loop."""
        if self._is_busy or self._is_closed:
            return None
        step = self._open if not self._is_open else self._wanted_step(least)
        if step is not None:
            self._is_busy = True
            return partial(self._carry_out, step)
        return None

    def _wanted_step(self, least: int) -> Callable[[], None] | None:
        self._doubt_copies()
        if any(queue.retention.tier for queue, _ in self._streams.values()):
            self._uploads.begin(self._host.config.stream_index_local_max)
        if self.series.gaps and not self.is_changed:
            parts = self._gap_parts()
            ready = self._readable(self.series.gaps[0].incarnation, parts)
            if ready or not parts:
                return partial(self._fill, ready)
        parts = [
            part
            for incarnation, row in self._streams.items()
            for part in self._readable(incarnation, self._parts_of(*row))
        ]
        is_due = time.monotonic() >= self._expiry
        gone, self._gone = self._gone, set()
        uploads = self._uploads.take()
        is_worth = sum(part.end - part.position for part in parts) >= max(1, least)
        if not (
            is_worth
            or is_due
            or gone
            or uploads
            or self.is_changed
            or self.series.work_waits
            or self.series.damaged
        ):
            return None
        held = None
        if is_due:
            self._expiry = time.monotonic() + EXPIRY_S
            held = {each: queue.store.first_segment for each, queue in self._held.items()}
        streams = [stream for _, stream in self._streams.values()]
        work = Work(parts, streams, gone, held, uploads, self._changes)
        return partial(self._go_on, work)

    def _doubt_copies(self) -> None:
        """Copies of what is in the object store that were found wrong are fetched again."""
        for part in self._bad_copies:
            queue = self._held.get(part.stream.incarnation)
            if queue is not None and queue.store.tier is not None:
                queue.store.tier.doubt(queue.store, part.summary)
        self._bad_copies.clear()

    def _parts_of(self, queue: Any, stream: Stream) -> list[Part]:
        """What of a stream is synced and not indexed."""
        store = queue.store
        position = self.series.position(stream.incarnation) or (0, 0)
        if position > max(store.synced_end, (store.first_segment, 0)):
            # The index is of a later state of the stream than the one that was put here.
            self._gone.add(stream.incarnation)
            return []
        rows = store.synced_parts(*position, STEP_SEGMENTS)
        return [Part(stream, *row) for row in rows]

    def _gap_parts(self) -> list[Part]:
        """What the first gap is to be filled from; nothing where it is over."""
        gap = self.series.gaps[0]
        row = self._streams.get(gap.incarnation)
        keeps = self.series.position(gap.incarnation)
        if row is None or keeps is None:
            return []
        queue, stream = row
        return [
            Part(
                stream, summary, position, end if summary.number < gap.end[0] else gap.end[1], keeps
            )
            for summary, position, end in queue.store.synced_parts(*gap.begin, STEP_SEGMENTS)
            if (summary.number, position) < gap.end
        ]

    def _readable(self, incarnation: int, parts: list[Part]) -> list[Part]:
        """Those of the next parts of a stream that can be read now: up to the first that is on its
        way from the object store."""
        found: list[Part] = []
        who = incarnation, bool(parts and parts[0].keeps)
        if not parts or not parts[0].summary.cold:
            self._ahead.pop(who, None)
        for part in parts:
            if part.summary.cold:
                placed = self._ahead_of(who).placed(part)
            else:
                path = part.stream.segment(part.segment)
                placed = part._replace(path=path, readable=part.end)
            if placed is None:
                break
            found.append(placed)
            if placed.readable < part.end:
                break
        return found

    def _ahead_of(self, who: tuple[int, bool]) -> Ahead:
        found = self._ahead.get(who)
        if found is None:
            found = self._ahead[who] = Ahead(self._held[who[0]].store)
        return found

    # -- in the thread -----------------------------------------------------------------------------

    def _carry_out(self, step: Callable[[], None]) -> None:
        problem = ""
        try:
            with self._step:
                if not self._is_closed:
                    step()
                    self.figures = self.series.figures()
        except OSError as error:
            problem = f"{error.strerror}: {error.filename}"
        except Full as error:
            problem = str(error)
        except Exception as error:
            log.exception("the index of vhost '%s'", self.name)
            problem = f"an internal error ({type(error).__name__}: {error})"
        if problem and problem != self._failure:
            log.warning("the index of vhost '%s' does not go on: %s", self.name, problem)
        self._failure = problem
        self._is_busy = False

    def _open(self) -> None:
        for problem in self.series.recover():
            log.warning("the index of vhost '%s': %s", self.name, problem)
        try:
            self._since = json.loads(disk.read(f"{self.directory}/{KEYS}"))
        except FileNotFoundError:
            pass
        except ValueError as error:
            log.warning("%s/%s is not readable: %s", self.directory, KEYS, error)
        self._is_open = True

    def _go_on(self, work: Work) -> None:
        """Whatever there is to be done; of long work, a part."""
        self._uploads.note(work.uploads)
        if work.gone:
            self.series.forget(work.gone)
        self._note_keys(work.streams, work.gone)
        self._noted = work.changes
        for number in sorted(self.series.damaged):
            log.warning("index file %d of vhost '%s' is damaged, and made again", number, self.name)
            self.series.retire(number)
        self.series.damaged.clear()
        self.series.compact_next()
        parts = [part for part in work.parts if part.stream.incarnation not in work.gone]
        _, failed = self._feed(parts)
        self.series.flush()
        if work.held is not None:
            self.series.expire(work.held)
            self.series.delete_expired()
        if failed is not None:
            raise failed

    def _feed(self, parts: list[Part]) -> tuple[list[tuple[Part, int]], OSError | Full | None]:
        """Indexes as much as one step takes; returns up to where which parts were read, and why the
        first of those that failed did: it must not hold up the others."""
        left = STEP_BYTES
        stopped: set[int] = set()
        read: list[tuple[Part, int]] = []
        failed: OSError | Full | None = None
        for part in parts:
            if left <= 0 or part.stream.incarnation in stopped:
                continue
            try:
                reached = feed(self.series, part, left)
            except BadCopy:
                self._bad_copies.append(part)
                stopped.add(part.stream.incarnation)
                continue
            except (OSError, Full) as error:
                failed = failed or error
                stopped.add(part.stream.incarnation)
                continue
            left -= reached - part.position
            read.append((part, reached))
            if reached < part.end:
                stopped.add(part.stream.incarnation)
        return read, failed

    def _fill(self, parts: list[Part]) -> None:
        """Indexes a part of the first gap again; no parts: it is over."""
        gaps = self.series.gaps
        read, failed = self._feed(parts)
        for part, reached in read:
            gaps[0] = gaps[0]._replace(begin=(part.segment, reached))
        if not parts:
            gaps.pop(0)
            if not gaps:
                self.series.filled()
        self.series.compact_next()
        self.series.flush()
        if failed is not None:
            raise failed

    def _note_keys(self, streams: list[Stream], gone: set[int]) -> None:
        """Notes from when on a stream is indexed by a key that is new."""
        dropped = {f"{incarnation:016x}" for incarnation in gone}
        since = {each: keys for each, keys in self._since.items() if each not in dropped}
        for stream in streams:
            is_new = self.series.position(stream.incarnation) is None
            known = self._since.get(f"{stream.incarnation:016x}", {})
            since[f"{stream.incarnation:016x}"] = {
                name: 0 if is_new else known.get(name, clock.now()) for name in stream.names
            }
        if since != self._since:
            disk.write_atomic(f"{self.directory}/{KEYS}", json.dumps(since).encode())
            self._since = since

    # -- searches ----------------------------------------------------------------------------------

    def search(self, queue: Any, name: str, value: bytes, wanted: Wanted) -> Callable[[], Answer]:
        """A search through one stream, for a thread. On the loop."""
        _, stream = self._streams[queue.incarnation]
        held = {queue.incarnation: Held(stream, queue.store.first_segment, queue.store)}
        config = self._host.config
        end = time.monotonic() + config.stream_search_timeout

        def time_left() -> float:
            return 0.0 if self._is_closed else end - time.monotonic()

        on_loop = self._host.loop.call_soon_threadsafe
        cold = ColdReads(on_loop, time_left, config.stream_search_fetches_max)
        search = Search(
            self.series,
            Key(name.encode("utf-8", "surrogateescape"), value),
            wanted._replace(streams=frozenset(held)),
            Reader(held, name, value, cold),
            time_left,
        )

        def run() -> Answer:
            answer = search.run()
            answer.fetched += cold.fetched
            return answer

        return run

    # -- end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Clean stop: what was added is written."""
        with self._step:
            if self._is_open and not self._is_closed:
                try:
                    self.series.close()
                except OSError as error:
                    log.warning("the index of vhost '%s': %s", self.name, error)
            self._is_closed = True

    def give_up_objects(self) -> None:
        """The vhost is deleted: its objects are of no use. On the loop."""
        self._uploads.end()

    def remove(self) -> None:
        """The vhost is deleted. For a thread."""
        self.close()
        try:
            disk.remove_tree(self.directory)
        except OSError as error:
            log.warning("%s is not removed: %s", self.directory, error.strerror)
