"""Spark reads messages out of a data directory: what a broker wrote, without what is settled."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan
from pyspark.sql.types import TimestampType

from management.reports import messages
from management.reports.messages import (
    Messages,
    PushingReader,
    Reader,
    StreamReader,
    narrowed,
    options,
)
from management.reports.segments import Limits, SegmentsUnreadable, queues_of, rows
from tests.appliance import Appliance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

COUNT, EVENTS = 2000, 1500
LARGE = b"s" * 20_000


def body(number: int) -> bytes:
    return b"%d:" % number + b"x" * 100


def connected(broker: Appliance) -> pika.BlockingConnection:
    host, port = broker.addresses["amqp"]
    return pika.BlockingConnection(pika.ConnectionParameters(host, port))


def publish_events(broker: Appliance, first: int, end: int) -> None:
    with connected(broker) as connection:
        channel = connection.channel()
        for number in range(first, end):
            channel.basic_publish("", "events", body(number))
        channel.confirm_delivery()
        channel.basic_publish("", "nowhere", b"")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A stopped broker: a queue of which every third message was acked, two queues that share large
    bodies, a priority queue, a transient one, and a stream."""
    broker = Appliance("broker", tmp_path_factory.mktemp("messages"), segment_size=65536)
    broker.start()
    kept = pika.BasicProperties(delivery_mode=2, content_type="text/plain")
    with connected(broker) as connection:
        channel = connection.channel()
        stream = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 65536}
        channel.queue_declare("events", durable=True, arguments=stream)
        channel.queue_declare("ranked", durable=True, arguments={"x-max-priority": 3})
        channel.queue_declare("passing", exclusive=True)
        channel.exchange_declare("all", "fanout", durable=True)
        for name in ("orders", "left", "right", "gone"):
            channel.queue_declare(name, durable=True)
        channel.queue_delete("gone")
        for name in ("left", "right"):
            channel.queue_bind(name, "all")
        for number in range(COUNT):
            channel.basic_publish("", "orders", body(number), kept)
        for number in range(5):
            channel.basic_publish("all", f"key.{number}", LARGE + b"%d" % number, kept)
        for priority in (2, 0, 3):
            properties = pika.BasicProperties(delivery_mode=2, priority=priority)
            channel.basic_publish("", "ranked", b"p%d" % priority, properties)
        channel.basic_publish("", "passing", b"not on disk")
        for method, _, _ in channel.consume("orders"):
            if method.delivery_tag % 3 == 1:
                channel.basic_ack(method.delivery_tag)
            if method.delivery_tag == COUNT:
                break
        channel.cancel()
        channel.basic_get("left", auto_ack=True)
    publish_events(broker, 0, EVENTS)
    broker.stop()
    yield broker
    broker.close()


def told(path: Path | str, **limits: Any) -> list[dict[str, Any]]:
    chosen = Limits(**limits)
    found = []
    for queue in queues_of(str(path), chosen):
        for batch in rows(queue.segments, chosen):
            found += batch.to_pylist()
    return found


def test_it_reads_what_is_not_settled_in_the_order_of_the_queue(broker: Appliance) -> None:
    found = told(broker.data_dir, queue="orders")
    assert [row["body"] for row in found] == [body(n) for n in range(COUNT) if n % 3]
    assert len({row["segment"] for row in found}) > 2
    first = found[0]
    assert (first["vhost"], first["type"], first["offset"]) == ("/", "classic", None)
    assert (first["exchange"], first["routing_key"], first["persistent"]) == ("", "orders", True)
    assert b"text/plain" in first["properties"]
    age = datetime.now(UTC) - first["published"]
    assert 0 <= age.total_seconds() < 3600


def test_it_reads_shared_bodies_and_levels_of_priority(broker: Appliance) -> None:
    assert [row["body"] for row in told(broker.data_dir, queue="right")] == [
        LARGE + b"%d" % number for number in range(5)
    ]
    left = told(broker.data_dir, queue="left")
    assert [row["routing_key"] for row in left] == [f"key.{number}" for number in range(1, 5)]
    assert {row["body"] for row in told(broker.data_dir, queue="ranked")} == {b"p0", b"p2", b"p3"}
    names = {queue.name for queue in queues_of(str(broker.data_dir), Limits())}
    assert names == {"events", "ranked", "orders", "left", "right"}


def test_it_reads_a_stream_by_offsets_and_only_the_segments_of_them(broker: Appliance) -> None:
    everything = told(broker.data_dir, queue="events")
    assert [row["offset"] for row in everything] == list(range(EVENTS))
    assert [row["body"] for row in everything] == [body(n) for n in range(EVENTS)]
    part = told(broker.data_dir, queue="events", offset=700, end_offset=710)
    assert [row["offset"] for row in part] == list(range(700, 710))
    (whole,) = queues_of(str(broker.data_dir), Limits(queue="events"))
    (few,) = queues_of(str(broker.data_dir), Limits(queue="events", offset=700, end_offset=710))
    assert 1 <= len(few.segments) <= 2 < len(whole.segments)
    assert told(broker.data_dir, queue="orders", offset=5) == [], "queues have no offsets"
    middle = int(everything[700]["published"].timestamp() * 1000)
    later = told(broker.data_dir, queue="events", first_ms=middle)
    assert {row["offset"] for row in later} >= set(range(700, EVENTS))
    assert all(row["published"] >= everything[700]["published"] for row in later)


def test_a_damaged_segment_is_told_or_left_out(broker: Appliance, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir, copy, ignore=shutil.ignore_patterns("*.sock", "run"))
    (queue,) = queues_of(str(copy), Limits(queue="events"))
    path = queue.segments[1].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SegmentsUnreadable, match=r"no sound record at position .* damaged = skip"):
        told(copy, queue="events")
    found = [row["offset"] for row in told(copy, queue="events", skip_damaged=True)]
    assert found == sorted(found) and EVENTS * 0.5 < len(found) < EVENTS
    last = queue.segments[-1].path
    last.write_bytes(last.read_bytes()[:-30])
    assert told(copy, queue="events", offset=1400)[-1]["offset"] == EVENTS - 2, "a torn tail"


def test_filters_narrow_what_is_read(broker: Appliance) -> None:
    limits = Limits()
    for one in (
        EqualTo(("queue",), "events"),
        GreaterThanOrEqual(("offset",), 100),
        LessThan(("offset",), 200),
        LessThan(("body",), b"x"),
    ):
        limits = narrowed(limits, one)
    assert limits == Limits(queue="events", offset=100, end_offset=201)
    assert (
        narrowed(replace(limits, queue="orders"), EqualTo(("queue",), "events")).queue == "orders"
    )
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    assert narrowed(Limits(), GreaterThanOrEqual(("published",), moment)).first_ms == int(
        moment.timestamp() * 1000
    )
    reader = PushingReader(str(broker.data_dir), Limits())
    kept = list(reader.pushFilters([EqualTo(("queue",), "left")]))
    assert len(kept) == 1, "Spark filters what it gets, too"
    assert {one.queue for part in reader.partitions() for one in part.segments} == {"left"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "path is missing"),
        ({"path": "/x", "quueue": "y"}, "there is no option 'quueue'"),
        ({"path": "/x", "from": "soon"}, "not a time such as"),
        ({"path": "/x", "offset": "-1"}, "not an offset such as"),
        ({"path": "/x", "damaged": "yes"}, "not fail or skip"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(given)


def test_what_is_no_data_directory_is_refused(broker: Appliance, tmp_path: Path) -> None:
    with pytest.raises(SegmentsUnreadable, match="is no data directory"):
        told(tmp_path)
    with pytest.raises(ValueError, match="set the options vhost and queue"):
        StreamReader(str(broker.data_dir), Limits())
    orders = StreamReader(str(broker.data_dir), Limits(vhost="/", queue="orders"))
    with pytest.raises(ValueError, match="no durable stream 'orders'"):
        orders.latestOffset()


def test_segments_are_read_in_groups(broker: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(str(broker.data_dir), Limits(queue="orders"))
    assert len(reader.partitions()) == 1
    monkeypatch.setattr(messages, "PARTITION_BYTES", 100_000)
    several = reader.partitions()
    assert len(several) > 2
    found = [row for part in several for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == told(broker.data_dir, queue="orders")


def process_all(begin: Callable[[], StreamingQuery]) -> None:
    """Until a query has processed all there is. Spark gives the Python process that reads a stream
    ten seconds to start and connect, and has no setting for it: on a machine that others use it may
    take longer, and the query has to be begun again."""
    for tries_left in (2, 1, 0):
        query = begin()
        try:
            query.processAllAvailable()
        except StreamingQueryException as error:
            if not tries_left or "failed to connect back" not in str(error):
                raise
        else:
            return
        finally:
            query.stop()


def test_spark_reads_a_batch_and_follows_a_stream(
    spark: SparkSession, broker: Appliance, tmp_path: Path
) -> None:
    spark.dataSource.register(Messages)
    frame = spark.read.format("leveret").option("path", str(broker.data_dir)).load()
    assert isinstance(frame.schema["published"].dataType, TimestampType)
    counts = {row.queue: row["count"] for row in frame.groupBy("queue").count().collect()}
    unsettled = sum(1 for number in range(COUNT) if number % 3)
    assert counts == {"events": EVENTS, "orders": unsettled, "left": 4, "right": 5, "ranked": 3}

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    pushing = spark.read.format("leveret").options(path=str(broker.data_dir), pushdown="true")
    few = pushing.load().where("queue = 'events' and offset >= 10 and offset < 13")
    assert sorted(row.offset for row in few.collect()) == [10, 11, 12]
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    def begin() -> StreamingQuery:
        return (
            spark.readStream.format("leveret")
            .options(path=str(broker.data_dir), vhost="/", queue="events", offset="100")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(str(tmp_path / "out"))
        )

    def follow() -> list[int]:
        process_all(begin)
        out = spark.read.parquet(str(tmp_path / "out"))
        return sorted(row.offset for row in out.select("offset").collect())

    assert follow() == list(range(100, EVENTS))
    broker.start()
    publish_events(broker, EVENTS, EVENTS + 50)
    assert follow() == list(range(100, EVENTS + 50)), "from the checkpoint on, a broker runs"
    broker.stop()
