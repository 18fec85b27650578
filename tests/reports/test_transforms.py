"""What the reports compute, whole frames compared."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as f
from pyspark.testing import assertDataFrameEqual

from broker.features.usage import records
from management.reports import schemas, transforms
from management.reports.catalog import REPORTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def feed(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Feed lines; what a row leaves out is null. The day is 2026-11-21 and the kind is queue."""
    defaults = {"v": 1, "kind": "queue", "vhost": "/", "date": date(2026, 11, 21), "begun": 7}
    names = schemas.FEED.fieldNames()
    return spark.createDataFrame(
        [tuple((defaults | row).get(name) for name in names) for row in rows], schemas.FEED
    )


def at(hour: int, day: int = 21) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC).replace(tzinfo=None)


def test_it_adds_up_messages_and_bytes_per_hour_vhost_and_queue(spark: SparkSession) -> None:
    lines = feed(
        spark,
        {"name": "a", "hour": 10, "publish": 3, "publish_bytes": 48, "messages": 3,
         "messages_peak": 8},
        {"name": "a", "hour": 10, "publish": 2, "publish_bytes": 32, "deliver": 4, "get": 1,
         "deliver_bytes": 80, "ack": 4, "redeliver": 1, "messages": 1},
        {"name": "a", "hour": 11, "deliver_no_ack": 1, "get_no_ack": 1, "begun": 8},
        {"name": "a", "hour": 10, "vhost": "shop", "publish": 9, "publish_bytes": 9, "messages": 4},
        {"name": "held", "hour": 10, "messages": 50, "get_empty": 4},
        {"name": "amq.topic", "hour": 10, "kind": "exchange", "publish_in": 1000},
        {"user": "anna", "hour": 10, "kind": "user", "recv_oct": 1000},
    )  # fmt: skip
    expected = spark.createDataFrame(
        [
            (at(10), "/", "a", 5, 80, 5, 80, 4, 1, 8),
            (at(10), "shop", "a", 9, 9, 0, 0, 0, 0, 4),
            (at(11), "/", "a", 0, 0, 2, 0, 0, 0, 0),
        ],
        schemas.QUEUE_USAGE,
    )
    assertDataFrameEqual(
        transforms.queue_usage(lines), expected, checkRowOrder=True, ignoreNullable=True
    )


def test_it_makes_nothing_of_an_empty_feed(spark: SparkSession) -> None:
    assertDataFrameEqual(
        transforms.queue_usage(feed(spark)),
        spark.createDataFrame([], schemas.QUEUE_USAGE),
        ignoreNullable=True,
    )


def test_it_takes_only_the_hours_that_are_wanted(spark: SparkSession) -> None:
    lines = feed(
        spark,
        {"name": "before", "hour": 9},
        {"name": "first", "hour": 10},
        {"name": "next day", "hour": 3, "date": date(2026, 11, 22)},
        {"name": "day before", "hour": 23, "date": date(2026, 11, 20)},
    )
    kept = transforms.since(lines, f.to_timestamp(f.lit("2026-11-21 10:00:00")))
    assert sorted(row["name"] for row in kept.collect()) == ["first", "next day"]


def test_it_counts_torn_and_newer_lines_and_leaves_them_out(spark: SparkSession) -> None:
    whole = feed(spark, {"name": "a", "hour": 10}, {"name": "b", "hour": 10, "v": 2})
    lines = whole.withColumn(schemas.UNREADABLE, f.lit(None).cast("string"))
    torn = feed(spark, {"hour": 10, "v": None, "kind": None}).withColumn(
        schemas.UNREADABLE, f.lit('{"v":1,"ki')
    )
    lines = lines.unionByName(torn)
    assertDataFrameEqual(transforms.readable(lines), feed(spark, {"name": "a", "hour": 10}))
    (row,) = transforms.census(lines).collect()
    assert (row["lines"], row["unreadable"], row["newer"]) == (3, 2, 1)


def test_it_reads_every_counter_that_the_broker_writes() -> None:
    written = {
        *records.QUEUE_COUNTERS,
        *records.QUEUE_LEVELS,
        *records.EXCHANGE_COUNTERS,
        *records.CONNECTION_COUNTERS,
        "connections",
    }
    assert written <= set(schemas.LINE.fieldNames())
    assert records.SCHEMA_VERSION == schemas.FEED_VERSION


def test_it_has_a_schema_for_what_the_catalog_promises() -> None:
    report = REPORTS["queue-usage"]
    assert [column.name for column in report.columns] == schemas.QUEUE_USAGE.fieldNames()
    assert callable(getattr(transforms, report.transform))
