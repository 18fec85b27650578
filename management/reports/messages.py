"""A data source for Spark: the messages in the queues and streams of a data directory.

    from management.reports.messages import Messages

    spark.dataSource.register(Messages)
    spark.read.format("leveret").option("path", "/backups/2026-11-21").load()

It reads durable queues of a backup (or of a data directory without a broker) as Arrow batches, a
partition for each group of segments, and streams also as a streaming source. Workers need this
package and the directory at the same path. docs/messages.md describes columns and options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from .segments import Limits, Queue, Segment, queues_of, rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SCHEMA = (
    "vhost string, queue string, type string, offset bigint, published timestamp, exchange string,"
    " routing_key string, persistent boolean, properties binary, body binary, segment bigint,"
    " position bigint"
)
OPTIONS = ("path", "vhost", "queue", "from", "to", "offset", "end_offset", "damaged", "pushdown")

# Segments are read together up to this number of bytes: handing a partition to Python costs more
# than reading a small file.
PARTITION_BYTES = 64 << 20


class Messages(DataSource):
    """Spark's format `leveret`."""

    @classmethod
    def name(cls) -> str:
        return "leveret"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises ValueError for a wrong option."""
        kind = PushingReader if self.options.get("pushdown", "") == "true" else Reader
        return kind(*options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Raises ValueError for a wrong option, and unless they name one stream."""
        return StreamReader(*options(self.options))


@dataclass
class Part(InputPartition):
    """Some segments, and which of their rows are wanted."""

    segments: tuple[Segment, ...]
    limits: Limits


def options(given: Mapping[str, str]) -> tuple[str, Limits]:
    """The directory and what is wanted of it. Raises ValueError with what is wrong."""
    path = given.get("path", "")
    if not path:
        raise ValueError("the option path is missing: a backup, or the data directory")
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise ValueError(f"there is no option {unknown[0]!r}: options are {', '.join(OPTIONS)}")
    damaged = given.get("damaged", "fail")
    if damaged not in ("fail", "skip"):
        raise ValueError(f"damaged is {damaged!r}, not fail or skip")
    limits = Limits(
        vhost=given.get("vhost"),
        queue=given.get("queue"),
        first_ms=_moment("from", given),
        end_ms=_moment("to", given),
        offset=_number("offset", given),
        end_offset=_number("end_offset", given),
        skip_damaged=damaged == "skip",
    )
    return path, limits


class Reader(DataSourceReader):
    """A batch: all that lies there."""

    def __init__(self, path: str, limits: Limits) -> None:
        self._path = path
        self._limits = limits

    def partitions(self) -> list[Part]:
        """Raises SegmentsUnreadable."""
        found = queues_of(self._path, self._limits)
        return parts((segment for queue in found for segment in queue.segments), self._limits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises SegmentsUnreadable."""
        assert isinstance(partition, Part)
        return rows(partition.segments, partition.limits)


class PushingReader(Reader):
    """With the option `pushdown`: Spark 4.1 and newer fail for a reader that takes filters, unless
    spark.sql.python.filterPushdown.enabled is true."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow what is read. Spark still applies the filters itself."""
        for one in filters:
            self._limits = narrowed(self._limits, one)
        return filters


class StreamReader(DataSourceStreamReader):
    """A streaming query over one stream; Spark keeps the offset in its checkpoint."""

    def __init__(self, path: str, limits: Limits) -> None:
        if limits.vhost is None or limits.queue is None:
            raise ValueError("a streaming query reads one stream: set the options vhost and queue")
        self._path = path
        self._limits = limits

    def _stream(self) -> Queue:
        found = queues_of(self._path, self._limits)
        if len(found) != 1 or found[0].type != "stream":
            raise ValueError(
                f"there is no durable stream {self._limits.queue!r} in vhost"
                f" {self._limits.vhost!r} of {self._path}: queues are read as a batch"
            )
        return found[0]

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The first message that is still there, or the option `offset`."""
        first = next((one.first_offset for one in self._stream().segments), 0)
        return {"offset": max(first, self._limits.offset or 0)}

    def latestOffset(  # noqa: N802
        self, start: dict[str, int] | None = None, limit: object = None
    ) -> dict[str, int]:
        """The offset behind the last message on disk. Spark 4.1 gives no arguments."""
        segments = self._stream().segments
        return {"offset": segments[-1].end_offset() if segments else 0}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
        """Raises SegmentsUnreadable."""
        limits = replace(self._limits, offset=start["offset"], end_offset=end["offset"])
        return parts(queues_of(self._path, limits)[0].segments, limits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises SegmentsUnreadable."""
        assert isinstance(partition, Part)
        return rows(partition.segments, partition.limits)


def parts(segments: Iterable[Segment], limits: Limits) -> list[Part]:
    """Segments in their order, in groups of up to PARTITION_BYTES."""
    found: list[Part] = []
    group: list[Segment] = []
    size = 0
    for segment in segments:
        if group and size + segment.size > PARTITION_BYTES:
            found.append(Part(tuple(group), limits))
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        found.append(Part(tuple(group), limits))
    return found


def narrowed(limits: Limits, one: Filter) -> Limits:
    """Limits with what a filter says of vhost, queue, time or offset; others change nothing."""
    column, value = getattr(one, "attribute", ()), getattr(one, "value", None)
    if isinstance(one, EqualTo) and column in (("vhost",), ("queue",)) and isinstance(value, str):
        if column == ("vhost",):
            return replace(limits, vhost=limits.vhost if limits.vhost is not None else value)
        return replace(limits, queue=limits.queue if limits.queue is not None else value)
    low, high = isinstance(one, (GreaterThan, GreaterThanOrEqual, EqualTo)), False
    if isinstance(one, (LessThan, LessThanOrEqual, EqualTo)):
        high = True
    if column == ("offset",) and isinstance(value, int):
        if low:
            limits = replace(limits, offset=max(limits.offset or 0, value))
        if high:
            end = value + 1
            known_end = limits.end_offset
            limits = replace(limits, end_offset=end if known_end is None else min(end, known_end))
    if column == ("published",) and isinstance(value, datetime):
        moment = value if value.tzinfo else value.astimezone()
        at = int(moment.timestamp() * 1000)
        if low:
            limits = replace(limits, first_ms=max(limits.first_ms or at, at))
        if high:
            known_ms = limits.end_ms
            limits = replace(limits, end_ms=at + 1 if known_ms is None else min(at + 1, known_ms))
    return limits


def _moment(name: str, given: Mapping[str, str]) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}, not a time such as 2026-11-21T10:00 (UTC)") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _number(name: str, given: Mapping[str, str]) -> int | None:
    text: Any = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} is {text!r}, not an offset such as 1000")
    return int(text)
