"""What the reports compute: functions from DataFrame to DataFrame, nothing else.

They are given rows of the usage tables (`folding.ROW`): hours, days or months, as their report's
grain says. Only the DataFrame API is used (no RDD, no JVM objects), so that Spark Connect runs them
too. They read and write nothing; `folding` and `results` do.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

_OUT = ("deliver", "deliver_no_ack", "get", "get_no_ack")


def within(rows: DataFrame, first: datetime, end: datetime | None = None) -> DataFrame:
    """The rows that begin at `first` or later, and before `end`."""
    rows = rows.where(f.col("at") >= f.lit(first))
    return rows if end is None else rows.where(f.col("at") < f.lit(end))


def queue_usage(rows: DataFrame) -> DataFrame:
    """Messages and bytes per hour, vhost and queue.

    Hours in which a queue only held messages, and none came or went, are left out; so are peeks at
    an empty queue.
    """
    summed = (
        rows.where(f.col("kind") == "queue")
        .groupBy(f.col("at").alias("hour"), "vhost", f.col("name").alias("queue"))
        .agg(
            _sum("publish").alias("messages_in"),
            _sum("publish_bytes").alias("bytes_in"),
            _sum(*_OUT).alias("messages_out"),
            _sum(*(f"{name}_bytes" for name in _OUT)).alias("bytes_out"),
            _sum("ack").alias("acknowledged"),
            _sum("redeliver").alias("redelivered"),
            f.max("messages_peak").alias("messages_peak"),
        )
    )
    moved = f.col("messages_in") + f.col("messages_out") + f.col("acknowledged")
    return summed.where(moved > 0)


def _sum(*names: str) -> Column:
    total = f.col(names[0])
    for name in names[1:]:
        total = total + f.col(name)
    return f.sum(total)
