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
from typing import Any

from broker.features.stream_index.feeding import Full, Part, Stream, feed
from broker.features.stream_index.messages import Held, Reader
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


class VHostIndex:
    """`directory` is the vhost's `index`; `capacity` the items of a file."""

    def __init__(self, name: str, directory: str, capacity: int) -> None:
        self.name = name
        self.directory = directory
        self.series = Series(directory, capacity)
        self.problem = ""
        """Why the index does not go on; empty: it does."""
        self.figures = self.series.figures()
        """Files, items and bytes by state, as the last step left them."""
        self._streams: dict[int, tuple[Any, Stream]] = {}
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
        if names:
            stream = Stream(queue.incarnation, queue.store.directory, names)
            self._streams[queue.incarnation] = queue, stream

    def forget(self, queue: Any) -> None:
        """A stream is deleted."""
        self._streams.pop(queue.incarnation, None)
        if self._held.pop(queue.incarnation, None) is not None:
            self._gone.add(queue.incarnation)

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

    def next_step(self) -> Callable[[], None] | None:
        """What is to be done next, for a thread; None: nothing, or a step is under way. On the
        loop."""
        if self._is_busy or self._is_closed:
            return None
        step = self._open if not self._is_open else self._wanted_step()
        if step is not None:
            self._is_busy = True
            return partial(self._carry_out, step)
        return None

    def _wanted_step(self) -> Callable[[], None] | None:
        if self.series.gaps and not self.is_changed:
            return partial(self._fill, self._gap_parts())
        parts = [part for row in self._streams.values() for part in self._parts_of(*row)]
        is_due = time.monotonic() >= self._expiry
        gone, self._gone = self._gone, set()
        if not (
            parts
            or is_due
            or gone
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
        return partial(self._go_on, parts, streams, gone, held, self._changes)

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
            Part(stream, segment, position, end if segment < gap.end[0] else gap.end[1], keeps)
            for segment, position, end in queue.store.synced_parts(*gap.begin, STEP_SEGMENTS)
            if (segment, position) < gap.end
        ]

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
        if problem and problem != self.problem:
            log.warning("the index of vhost '%s' does not go on: %s", self.name, problem)
        self.problem = problem
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

    def _go_on(
        self,
        parts: list[Part],
        streams: list[Stream],
        gone: set[int],
        held: dict[int, int] | None,
        changes: int,
    ) -> None:
        """Whatever there is to be done; of long work, a part."""
        if gone:
            self.series.forget(gone)
        self._note_keys(streams, gone)
        self._noted = changes
        for number in sorted(self.series.damaged):
            log.warning("index file %d of vhost '%s' is damaged, and made again", number, self.name)
            self.series.retire(number)
        self.series.damaged.clear()
        self.series.compact_next()
        left = STEP_BYTES
        for part in parts:
            if left > 0 and part.stream.incarnation not in gone:
                left -= feed(self.series, part, left) - part.position
        self.series.flush()
        if held is not None:
            self.series.expire(held)

    def _fill(self, parts: list[Part]) -> None:
        """Indexes a part of the first gap again."""
        gaps = self.series.gaps
        left = STEP_BYTES
        for part in parts:
            if left > 0:
                reached = feed(self.series, part, left)
                left -= reached - part.position
                gaps[0] = gaps[0]._replace(begin=(part.segment, reached))
        if not parts:
            gaps.pop(0)
            if not gaps:
                self.series.filled()
        self.series.compact_next()
        self.series.flush()

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

    def search(self, queue: Any, name: str, value: bytes, wanted: Wanted, seconds: float
               ) -> Callable[[], Answer]:  # fmt: skip
        """A search through one stream, for a thread. On the loop."""
        _, stream = self._streams[queue.incarnation]
        held = {queue.incarnation: Held(stream, queue.store.first_segment)}
        end = time.monotonic() + seconds
        key = Key(name.encode("utf-8", "surrogateescape"), value)
        return Search(
            self.series,
            key,
            wanted._replace(streams=frozenset(held)),
            Reader(held, name, value),
            lambda: time.monotonic() < end,
        ).run

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

    def remove(self) -> None:
        """The vhost is deleted. For a thread."""
        self.close()
        try:
            disk.remove_tree(self.directory)
        except OSError as error:
            log.warning("%s is not removed: %s", self.directory, error.strerror)
