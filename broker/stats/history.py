"""The long history: a day by the minute, a month by ten minutes, a year by the hour, on disk.

Once a minute what changed is taken off the gauges and appended as one frame; coarser frames are
made of the finer ones that lie on disk, so that a restart loses nothing but the minute at hand.
`steps` is a generator that the server steps between turns; a step yields None, or a function that
waits for the disk, which the server calls in a thread. Bounded by `history_bytes_max`: every frame
has its share of it, in which the node comes first, then what moved most.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

from broker.stats.gauges import KINDS
from broker.stats.history_file import (
    Columns,
    Damaged,
    Frame,
    Records,
    decode,
    encode_frame,
    encode_header,
    fitted,
    let_go,
    merged,
)
from broker.stats.sampler import (
    MESSAGE_COUNTERS,
    NODE_COUNTERS,
    NODE_LEVELS,
    OBJECT_TOTALS,
    QUEUE_TOTALS,
    SampledVHost,
    Stats,
    Totals,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NODE_KEY = 0

COLUMNS: Columns = {
    "node": (NODE_COUNTERS, NODE_LEVELS),
    "vhost": ((*MESSAGE_COUNTERS, "recv_oct", "send_oct"), (*QUEUE_TOTALS, *OBJECT_TOTALS)),
    "queue": KINDS["queue"],
    "exchange": KINDS["exchange"],
}
FIRST = ("node",)
"""Kinds that are never left out."""

_OBJECTS_PER_STEP = 100


class Tier(NamedTuple):
    """One step length. `span_ms` is what a chart shows of it, `file_ms` how much one file holds."""

    name: str
    step_ms: int
    span_ms: int
    file_ms: int

    @property
    def frames(self) -> int:
        """How many there are at most: files go as a whole."""
        return (self.span_ms + 2 * self.file_ms) // self.step_ms


TIERS = (
    Tier("minute", 60_000, DAY_MS, HOUR_MS),
    Tier("ten-minutes", 600_000, 31 * DAY_MS, DAY_MS),
    Tier("hour", HOUR_MS, 366 * DAY_MS, 30 * DAY_MS),
)


class Disk(Protocol):
    """The part of the store's access to the file system that the history uses."""

    def append(self, path: str, data: bytes) -> None: ...
    def read(self, path: str) -> bytes: ...
    def listdir(self, path: str) -> list[str]: ...
    def makedirs(self, path: str) -> None: ...
    def truncate(self, path: str, length: int) -> None: ...
    def unlink(self, path: str) -> None: ...


def key_of(kind: str, thing: Any, vhost: SampledVHost | None = None) -> int:
    """What names an object in the files: its incarnation, which is never used twice; a predeclared
    exchange by its vhost's and its name."""
    incarnation: int = thing.incarnation
    if kind == "exchange" and not incarnation:
        assert vhost is not None
        told = f"{vhost.incarnation}/{thing.name}".encode("utf-8", "surrogateescape")
        return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little")
    return incarnation


class History:
    """The files in one directory. `bytes_max` bounds them all together; 0 keeps no history.
    `yield_` lets other threads run: it is called between short steps of what runs in a thread."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        bytes_max: int,
        yield_: Callable[[], None] = lambda: None,
    ) -> None:
        self._yield = yield_
        self._disk = disk
        self._directory = directory
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        """Held while files are written or read."""
        self._marks: dict[int, tuple[dict[str, float], dict[str, float]]] = {}
        self._from_start: frozenset[int] = frozenset((NODE_KEY,))
        """By key, counters and levels of node and vhosts at the end of the last step."""
        self._since = 0
        self._newest = dict.fromkeys((tier.name for tier in TIERS), 0)
        self._failing = False

    @property
    def frame_bytes(self) -> int:
        """The records of one frame have room in it."""
        return self.bytes_max // sum(tier.frames for tier in TIERS)

    # -- life --------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Continues where the last run ended: a torn last frame is cut off. Waits for the disk.
        Raises OSError."""
        self._since = now_ms
        if not self.bytes_max:
            return
        self._disk.makedirs(self._directory)
        for tier in TIERS:
            for begin, name in reversed(self._files(tier)):
                path = f"{self._directory}/{name}"
                try:
                    data = self._disk.read(path)
                    _, frames, whole = decode(data)
                except OSError as error:
                    # Charts begin after it.
                    log.warning("history: %s", error)
                    continue
                except Damaged as error:
                    log.warning("history file %s is removed: %s", path, error)
                    self._disk.unlink(path)
                    continue
                self._newest[tier.name] = max([begin, *(frame.at for frame in frames)])
                if whole[0] < len(data):
                    log.info("the last frame of %s is torn and cut off", path)
                    self._disk.truncate(path, whole[0])
                break

    def is_due(self, now_ms: int) -> bool:
        """Whether a minute has ended since the last frame."""
        step = TIERS[0].step_ms
        return bool(self.bytes_max) and now_ms // step != self._since // step

    def begin(self, vhosts: Iterable[Any]) -> None:
        """The broker starts with these virtual hosts."""
        self._from_start = frozenset((NODE_KEY, *(vhost.incarnation for vhost in vhosts)))

    def steps(
        self, stats: Stats, vhosts: Iterable[Any], now_ms: int
    ) -> Iterator[Callable[[], None] | None]:
        """Takes what changed since the last frame and writes it."""
        records: Records = {}
        yield from self._take(stats, list(vhosts), records)
        since, self._since = self._since, now_ms
        step = TIERS[0].step_ms
        at = now_ms - now_ms % step if now_ms // step != since // step else now_ms
        covered = max(1, min(now_ms - since, step))
        yield lambda: self._write(records, at, covered)

    def _take(self, stats: Stats, vhosts: list[Any], records: Records) -> Iterator[None]:
        records["node"] = {}
        self._take_totals("node", NODE_KEY, stats.node, records)
        for gone in self._marks.keys() - {NODE_KEY, *(vhost.incarnation for vhost in vhosts)}:
            del self._marks[gone]
        for vhost in vhosts:
            self._take_totals("vhost", vhost.incarnation, stats.vhost(vhost.name), records)
            yield None
        by_name = {vhost.name: vhost for vhost in vhosts}
        for place, touched in enumerate(stats.take_touched(), 1):
            # Not by the number of records: of very many that have none all would be one step.
            if place % _OBJECTS_PER_STEP == 0:
                yield None
            if touched is None:
                continue
            kind, vhost_name, thing = touched
            found = thing.gauge.step()
            vhost = by_name.get(vhost_name)
            if found is not None and vhost is not None:
                records.setdefault(kind, {})[key_of(kind, thing, vhost)] = found

    def _take_totals(self, kind: str, key: int, totals: Totals, records: Records) -> None:
        counters, levels = COLUMNS[kind]
        before = self._marks.get(key)
        if before is None:
            # What was there at the start held what it holds; what is new began with nothing.
            before = ({}, totals.levels if key in self._from_start else {})
        # After a reset of the statistics a counter is less than before: it rose from zero.
        values = [
            totals.counters[name] - before[0].get(name, 0.0)
            if totals.counters[name] >= before[0].get(name, 0.0)
            else totals.counters[name]
            for name in counters
        ]
        values += [totals.levels[name] for name in levels]
        changes = [totals.levels[name] - before[1].get(name, 0.0) for name in levels]
        self._marks[key] = (dict(totals.counters), dict(totals.levels))
        if kind in FIRST or any(values[: len(counters)]) or any(changes):
            records.setdefault(kind, {})[key] = array("f", values + changes).tobytes()

    # -- writing, in a thread ----------------------------------------------------------------------

    def _write(self, records: Records, at: int, covered: int) -> None:
        with self._lock:
            try:
                self._append(TIERS[0], records, at, covered, 0)
                for finer, tier in pairwise(TIERS):
                    self._roll_up(finer, tier, at)
                for tier in TIERS:
                    self._prune(tier, at)
                self._failing = False
            except OSError as error:
                if not self._failing:
                    log.error("history: %s; this step of it is lost", error)
                self._failing = True
        # Here and bit by bit: 100,000 of them would be freed in one turn of the loop.
        self._gently(let_go(records))

    def _append(self, tier: Tier, records: Records, at: int, covered: int, left_out: int) -> None:
        if at <= self._newest[tier.name]:
            # The clock was set back: the steps until it has caught up are as they were.
            return
        found = self._gently(fitted(records, self.frame_bytes, COLUMNS, FIRST))
        assert found is not None
        sections, more = found
        frame = Frame(at, covered, left_out + more, sections)
        begin = (at - 1) // tier.file_ms * tier.file_ms
        name = f"{tier.name}-{begin}.hist"
        data = encode_frame(frame, COLUMNS)
        if (begin, name) not in self._files(tier):
            data = encode_header(tier.step_ms, COLUMNS) + data
        self._disk.append(f"{self._directory}/{name}", data)
        self._newest[tier.name] = at

    def _roll_up(self, finer: Tier, tier: Tier, now_ms: int) -> None:
        """Writes the coarser steps that have ended."""
        end = now_ms - now_ms % tier.step_ms
        newest = self._newest[tier.name]
        if end <= newest:
            return
        frames = self._frames(finer, newest + 1, end)
        for step_end, of_step in groupby(
            frames, lambda frame: -(-frame.at // tier.step_ms) * tier.step_ms
        ):
            found = self._gently(merged(of_step, COLUMNS))
            assert found is not None
            records, covered, left_out = found
            self._append(tier, records, step_end, min(covered, tier.step_ms), left_out)

    def _prune(self, tier: Tier, now_ms: int) -> None:
        for begin, name in self._files(tier):
            if begin + tier.file_ms < now_ms - tier.span_ms - tier.step_ms:
                self._disk.unlink(f"{self._directory}/{name}")

    # -- reading, in a thread ----------------------------------------------------------------------

    def chart(
        self, kind: str, key: int, from_ms: int, to_ms: int, now: dict[str, float]
    ) -> dict[str, Any]:
        """`{step_ms, times, series, left_out, begins}` of one object, oldest first.

        Counters are rates a second over each step; nil is a gap: the broker was down, or the object
        was left out of that step. `now` are its levels, for a time in which they did not change.
        `begins`: from when on there is history, ms since 1970, 0 if there is none. Waits for the
        disk.
        """
        tier = next((one for one in TIERS if to_ms - from_ms <= one.span_ms), TIERS[-1])
        with self._lock:
            files = self._files(tier)
            found = _Chart(kind, key, tier.step_ms, now)
            for frame in self._frames(tier, from_ms, to_ms):
                found.add(frame)
                self._yield()
        return found.told(files[0][0] if files else 0)

    def _gently(self, steps: Iterator[T | None]) -> T | None:
        """The last thing that a generator yields; other threads run between its steps."""
        last = None
        for found in steps:
            if found is None:
                self._yield()
            else:
                last = found
        return last

    def _files(self, tier: Tier) -> list[tuple[int, str]]:
        """Begin and name of the files of a tier, oldest first."""
        found = []
        for name in self._disk.listdir(self._directory):
            stem, _, begin = name.removesuffix(".hist").rpartition("-")
            if stem == tier.name and name.endswith(".hist") and begin.isdecimal():
                found.append((int(begin), name))
        return sorted(found)

    def _frames(self, tier: Tier, from_ms: int, to_ms: int) -> Iterator[Frame]:
        """Frames whose step ended between two times, in order."""
        newest = 0
        for begin, name in self._files(tier):
            if begin > to_ms or begin + tier.file_ms < from_ms:
                continue
            try:
                header, frames, _ = decode(self._disk.read(f"{self._directory}/{name}"))
            except (OSError, Damaged) as error:
                log.warning("history file %s: %s", name, error)
                continue
            same = [kind for kind in header.columns if COLUMNS.get(kind) == header.columns[kind]]
            for frame in frames:
                if from_ms <= frame.at <= to_ms and frame.at > newest:
                    newest = frame.at
                    sections = {kind: frame.sections[kind] for kind in same
                                if kind in frame.sections}  # fmt: skip
                    yield frame._replace(sections=sections)


class _Chart:
    """Chart data of one object, made frame by frame."""

    def __init__(self, kind: str, key: int, step_ms: int, now: dict[str, float]) -> None:
        self._kind, self._key, self._step_ms, self._now = kind, key, step_ms, now
        self._counters, self._levels = COLUMNS[kind]
        self._times: list[int] = []
        self._covered: list[int] = []
        self._rates: list[list[float | None]] = [[] for _ in self._counters]
        self._held: list[list[float | None]] = [[] for _ in self._levels]
        self._last: list[float] | None = None
        self._left_out = 0

    def add(self, frame: Frame) -> None:
        section = frame.sections.get(self._kind)
        record = section.of(self._key) if section is not None else None
        if self._times and frame.at - self._times[-1] > 1.5 * self._step_ms:
            self._point(self._times[-1] + self._step_ms, 0, None, None)
        count, levels = len(self._counters), len(self._levels)
        if record is None:
            is_known = not frame.left_out
            self._left_out += frame.left_out
            rates = [0.0] * count if is_known else None
            self._point(frame.at, frame.covered, rates, self._last)
            return
        held = list(record[count : count + levels])
        if self._last is None:
            # Until then it was as it was before this change.
            before = [
                end - change for end, change in zip(held, record[count + levels :], strict=True)
            ]
            self._fill(before)
        rates = [round(rise * 1000 / max(1, frame.covered), 3) for rise in record[:count]]
        self._point(frame.at, frame.covered, rates, held)
        self._last = held

    def _point(
        self, at: int, covered: int, rates: list[float] | None, held: list[float] | None
    ) -> None:
        self._times.append(at)
        self._covered.append(covered)
        for place, column in enumerate(self._rates):
            column.append(None if rates is None else rates[place])
        for place, column in enumerate(self._held):
            column.append(None if held is None or rates is None else round(held[place], 3))

    def _fill(self, held: list[float]) -> None:
        """Levels of the steps before the first record."""
        for place, column in enumerate(self._held):
            for at, rate in enumerate(self._rates[0] if self._rates else ()):
                if column[at] is None and rate is not None:
                    column[at] = round(held[place], 3)

    def told(self, begins: int) -> dict[str, Any]:
        if self._last is None and self._now:
            self._fill([self._now.get(name, 0.0) for name in self._levels])
        columns = zip((*self._counters, *self._levels), (*self._rates, *self._held), strict=True)
        return {
            "step_ms": self._step_ms,
            "times": self._times,
            "covered_ms": self._covered,
            "series": dict(columns),
            "left_out": self._left_out,
            "begins": begins,
        }
