"""Finds and reads the segments of durable queues where no broker serves them, for `messages`.

Definitions come from the journals of the vhosts (docs/formats/definitions.md), messages from the
segments (queue-segment.md, stream.md), shared bodies from theirs (bodies.md).
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

ROWS_PER_BATCH = 32_768
BYTES_PER_BATCH = 32 << 20
NO_RECORD_YET = 1 << 62
"""The first offset of a segment without a whole record: above all others."""


class SegmentsUnreadable(Exception):
    """Which file cannot be read, and why."""


@dataclass(frozen=True)
class Limits:
    """Which rows are wanted; None is no limit. Times are UTC ms, ends are not included."""

    vhost: str | None = None
    queue: str | None = None
    first_ms: int | None = None
    end_ms: int | None = None
    offset: int | None = None
    end_offset: int | None = None
    skip_damaged: bool = False


@dataclass(frozen=True)
class Segment:
    """One segment of a queue. `first_offset`: of its first message, if it is a stream's."""

    vhost: str
    queue: str
    type: str
    directory: str
    incarnation: int
    vhost_incarnation: int
    number: int
    size: int
    is_last: bool
    first_offset: int = -1

    @property
    def path(self) -> Path:
        return Path(self.directory) / f"msgs.{self.number:010}"

    def end_offset(self) -> int:
        """The offset behind the last message. Raises SegmentsUnreadable."""
        end = self.first_offset
        for _, columns in _batches(self, Limits(skip_damaged=True)):
            end = int.from_bytes(columns[4][-8:], "little") + 1
        return end


@dataclass(frozen=True)
class Queue:
    """A durable queue with what lies of it on disk."""

    vhost: str
    name: str
    type: str
    segments: tuple[Segment, ...]


def queues_of(path: str, limits: Limits) -> list[Queue]:
    """The durable queues within the limits, with the segments that may hold rows within them.
    Raises SegmentsUnreadable."""
    root = Path(path)
    if (root / "incomplete_backup").exists():
        raise SegmentsUnreadable(f"{root} is a backup that was not finished")
    try:
        vhosts = json.loads((root / "vhosts.json").read_bytes())
    except (OSError, ValueError) as error:
        raise SegmentsUnreadable(f"{root} is no data directory: {error}") from None
    found = []
    for vhost in vhosts:
        if limits.vhost not in (None, vhost["name"]) or not vhost.get("incarnation"):
            continue
        directory = root / "vhosts" / vhost["incarnation"]
        default = vhost.get("default_queue_type", "classic")
        for name, (incarnation, kind) in sorted(_declared(directory, default).items()):
            if limits.queue in (None, name):
                place = directory / "queues" / f"{incarnation:016x}"
                identity = (vhost["name"], name, kind, str(place), incarnation)
                segments = _segments(*identity, int(vhost["incarnation"], 16), limits)
                found.append(Queue(vhost["name"], name, kind, segments))
    return found


def rows(segments: Sequence[Segment], limits: Limits) -> Iterator[pa.RecordBatch]:
    """The unsettled messages of segments that are within the limits, in their order. Raises
    SegmentsUnreadable."""
    bodies: dict[tuple[str, int], Bodies] = {}
    for segment in segments:
        for count, columns in _batches(segment, limits):
            batch = _batch(segment, count, columns, bodies)
            kept = _within(batch, limits)
            if kept.num_rows:
                yield kept


def _declared(directory: Path, default: str) -> dict[str, tuple[int, str]]:
    """Incarnation and type of each durable queue, by its name."""
    from broker.store.directory import journal
    from broker.vhosts import changes

    try:
        data = (directory / "definitions.journal").read_bytes()
    except FileNotFoundError:
        return {}
    found: dict[str, tuple[int, str]] = {}
    for payload in journal.sound_entries(data)[0]:
        try:
            method, change, incarnation = changes.read_entry(payload)
        except Exception:  # noqa: S112 - of a newer version: the broker sets it aside, too
            continue
        if method == "queue.declare":
            kind = (change.get("arguments") or {}).get("x-queue-type", default)
            found[change["queue"]] = (incarnation, str(kind))
        elif method == "queue.delete":
            found.pop(change["queue"], None)
    return found


def _segments(
    vhost: str, queue: str, kind: str, place: str, incarnation: int, owner: int, limits: Limits
) -> tuple[Segment, ...]:
    from broker.store.files import record_scan

    directory = Path(place)
    if not directory.is_dir():
        return ()
    numbers = sorted(
        int(path.name[5:]) for path in directory.glob("msgs.*") if path.name[5:].isdigit()
    )
    found: list[Segment] = []
    for number in numbers:
        path = directory / f"msgs.{number:010}"
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                head = file.read(record_scan.HEAD_MOST)
        except FileNotFoundError:
            continue  # settled while we looked
        first, is_mark = -1, False
        if kind == "stream":
            first, is_mark = record_scan.first_offset(head) or (NO_RECORD_YET, False)
        if is_mark:
            found.clear()  # a purge: all segments before it are gone
        one = Segment(
            vhost,
            queue,
            kind,
            place,
            incarnation,
            owner,
            number,
            size,
            number == numbers[-1],
            first,
        )
        found.append(one)
    if kind != "stream":
        return tuple(found)
    ends = [one.first_offset for one in found[1:]]
    kept = []
    for place_, one in enumerate(found):
        is_early = (
            limits.offset is not None and place_ < len(ends) and ends[place_] <= limits.offset
        )
        is_late = limits.end_offset is not None and one.first_offset >= limits.end_offset
        if not is_early and not is_late:
            kept.append(one)
    return tuple(kept)


def _batches(segment: Segment, limits: Limits) -> Iterator[tuple[int, Any]]:
    from broker.store.files import record_scan

    try:
        with segment.path.open("rb") as file:
            size = file.seek(0, 2)
            if size <= record_scan.HEADER:
                return
            data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        return  # all of it was settled meanwhile
    except OSError as error:
        raise SegmentsUnreadable(f"{segment.path}: {error.strerror}") from None
    gone = b""
    acks = segment.path.with_name(f"acks.{segment.number:010}")
    try:
        if segment.type != "stream" and acks.exists():
            gone = record_scan.settled(acks.read_bytes(), segment.incarnation, segment.number)
        is_stream = segment.type == "stream"
        scan = record_scan.Scan(data, gone, segment.incarnation, segment.number, is_stream)
    except (OSError, ValueError) as error:
        raise SegmentsUnreadable(f"{segment.path}: {error}") from None
    while (columns := scan.next(ROWS_PER_BATCH, BYTES_PER_BATCH)) is not None:
        yield columns[0], columns
    # The last records of the newest segment may have been on their way to the disk.
    if scan.damaged and not segment.is_last and not limits.skip_damaged:
        raise SegmentsUnreadable(
            f"{segment.path}: no sound record at position {scan.position} (queue {segment.queue!r}"
            f" in vhost {segment.vhost!r}); with the option damaged = skip the rest of this segment"
            " is left out"
        )


def _batch(
    segment: Segment, count: int, columns: Any, bodies: dict[tuple[str, int], Bodies]
) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    from broker.store.files.record_scan import PERSISTENT, REFERENCE

    _, positions, times, flags, offsets, texts = columns
    flag = np.frombuffer(flags, np.uint8)

    def fixed(data: bytes, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])

    binaries = [
        pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
        for ends, data in texts
    ]
    body = binaries[3]
    if (flag & REFERENCE).any():
        body = _resolved(body, flag, segment, bodies)
    millis = fixed(times, pa.timestamp("ms", "UTC"))
    nulls = pa.nulls(count, pa.int64())
    same = {"vhost": segment.vhost, "queue": segment.queue, "type": segment.type}
    return pa.RecordBatch.from_pydict(
        {
            **{name: pa.repeat(pa.scalar(text), count) for name, text in same.items()},
            "offset": fixed(offsets, pa.int64()) if segment.type == "stream" else nulls,
            "published": millis.cast(pa.timestamp("us", "UTC")),
            "exchange": _text(binaries[0]),
            "routing_key": _text(binaries[1]),
            "persistent": pa.array((flag & PERSISTENT) != 0),
            "properties": binaries[2],
            "body": body,
            "segment": pa.repeat(pa.scalar(segment.number, pa.int64()), count),
            "position": fixed(positions, pa.uint32()).cast(pa.int64()),
        }
    )


def _text(values: pa.Array) -> pa.Array:
    import pyarrow as pa

    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # AMQP does not say which bytes a name has
        return pa.array([one.decode(errors="replace") for one in values.to_pylist()])


def _within(batch: pa.RecordBatch, limits: Limits) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    masks = []
    for name, low, high in (
        ("published", limits.first_ms, limits.end_ms),
        ("offset", limits.offset, limits.end_offset),
    ):
        values = batch[name]
        if name == "published":
            values = values.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        elif batch["offset"].null_count and (low is not None or high is not None):
            return batch.slice(0, 0)  # a queue has no offsets
        if low is not None:
            masks.append(pc.greater_equal(values, low))
        if high is not None:
            masks.append(pc.less(values, high))
    for mask in masks[1:]:
        masks[0] = pc.and_(masks[0], mask)
    return batch.filter(masks[0]) if masks else batch


def _resolved(
    body: pa.Array, flag: np.ndarray[Any, Any], segment: Segment, known: dict[Any, Bodies]
) -> pa.Array:
    """Bodies with references replaced; null where the shared body is not there."""
    import pyarrow as pa

    from broker.store.files.record_scan import REFERENCE

    place = Path(segment.directory).parents[1] / "bodies"
    key = (str(place), segment.vhost_incarnation)
    if key not in known:
        known[key] = Bodies(place, segment.vhost_incarnation)
    values = body.to_pylist()
    for index in (flag & REFERENCE).nonzero()[0]:
        values[index] = known[key].get(values[index][:16])
    return pa.array(values, pa.binary())


class Bodies:
    """The shared bodies of a vhost, by their ids."""

    def __init__(self, directory: Path, incarnation: int) -> None:
        from broker.store.bodies import file as body_file

        self._where: dict[bytes, tuple[Path, int, int]] = {}
        for path in sorted(directory.glob("*.bdy")):
            first = int(path.name.split("-")[0])
            toc = path.with_suffix(".toc")
            found = None
            if toc.exists():
                found = body_file.read_toc(
                    toc.read_bytes(), incarnation, first, path.stat().st_size
                )
            if found is None:
                found = body_file.scan(path.read_bytes(), incarnation)[0]
            for id_, offset, length in body_file.TOC_ROW.iter_unpack(found):
                self._where[id_] = (path, offset, length)

    def get(self, id_: bytes) -> bytes | None:
        """Raises SegmentsUnreadable."""
        if id_ not in self._where:
            return None
        from broker.store.bodies.file import RECORD_OVERHEAD

        path, offset, length = self._where[id_]
        try:
            with path.open("rb") as file:
                file.seek(offset + RECORD_OVERHEAD)
                return file.read(length - RECORD_OVERHEAD)
        except OSError as error:
            raise SegmentsUnreadable(f"{path}: {error.strerror}") from None
