"""What the reports compute, whole frames compared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.testing import assertDataFrameEqual

from management.reports import folding, transforms
from management.reports.catalog import REPORTS
from management.reports.columns import IDENTITY, MERGED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUE_USAGE = (
    "hour timestamp, vhost string, queue string, messages_in long, bytes_in long,"
    " messages_out long, bytes_out long, acknowledged long, redelivered long, messages_peak long"
)


def rows(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Rows of a table; what a row leaves out is zero. The kind is queue."""
    defaults = {"kind": "queue", "vhost": "/"} | dict.fromkeys(MERGED, 0)
    names = folding.ROW.fieldNames()
    values = [tuple((dict.fromkeys(IDENTITY, "") | defaults | row)[name] for name in names)
              for row in rows]  # fmt: skip
    return spark.createDataFrame(values, folding.ROW)


def at(hour: int, day: int = 21) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)


def test_it_adds_up_messages_and_bytes_per_hour_vhost_and_queue(spark: SparkSession) -> None:
    hours = rows(
        spark,
        {"name": "a", "at": at(10), "publish": 3, "publish_bytes": 48, "messages_peak": 8},
        {"name": "a", "at": at(10), "publish": 2, "publish_bytes": 32, "deliver": 4, "get": 1,
         "deliver_bytes": 60, "get_bytes": 20, "ack": 4, "redeliver": 1},
        {"name": "a", "at": at(11), "deliver_no_ack": 1, "get_no_ack": 1},
        {"name": "a", "at": at(10), "vhost": "shop", "publish": 9, "publish_bytes": 9,
         "messages_peak": 4},
        {"name": "held", "at": at(10), "messages": 50, "get_empty": 4},
        {"name": "amq.topic", "at": at(10), "kind": "exchange", "publish_in": 1000},
        {"user": "anna", "at": at(10), "kind": "user", "recv_oct": 1000},
    )  # fmt: skip
    expected = spark.createDataFrame(
        [
            (at(10), "/", "a", 5, 80, 5, 80, 4, 1, 8),
            (at(10), "shop", "a", 9, 9, 0, 0, 0, 0, 4),
            (at(11), "/", "a", 0, 0, 2, 0, 0, 0, 0),
        ],
        QUEUE_USAGE,
    )
    assertDataFrameEqual(transforms.queue_usage(hours), expected, ignoreNullable=True)
    later = transforms.within(hours, at(11))
    assert [row["messages_out"] for row in transforms.queue_usage(later).collect()] == [2]


def test_every_report_has_a_transform_that_gives_its_columns(spark: SparkSession) -> None:
    for report in REPORTS.values():
        frame = getattr(transforms, report.transform)(rows(spark))
        assert frame.columns == [column.name for column in report.columns]
        assert {"vhost"} <= set(frame.columns) and set(report.order) <= set(frame.columns)
