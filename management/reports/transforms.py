"""What the reports compute: functions from DataFrame to DataFrame, nothing else.

Only the DataFrame API is used (no RDD, no JVM objects), so that Spark Connect runs them too. They
read and write nothing; `feed_input` and `results` do.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from . import schemas


def with_file(lines: DataFrame, file_name: Column) -> DataFrame:
    """JSON lines with the partition columns that the name of their file spells."""
    hour = f.regexp_extract(file_name, r"^(\d{4}-\d\d-\d\d)T(\d\d)-(\d+)\.jsonl", 2)
    return lines.select(
        "*",
        f.regexp_extract(file_name, r"^(\d{4}-\d\d-\d\d)T", 1).cast("date").alias("date"),
        hour.cast("int").alias("hour"),
        f.regexp_extract(file_name, r"-(\d+)\.jsonl", 1).cast("long").alias("begun"),
    )


def readable(lines: DataFrame) -> DataFrame:
    """The lines of a version this program knows, in the shape of schemas.FEED."""
    return lines.where(_is_readable()).select(*schemas.FEED.fieldNames())


def census(lines: DataFrame) -> DataFrame:
    """How many lines each file holds, how many `readable` leaves out, how many are newer."""
    newer = f.coalesce(f.col("v") > schemas.FEED_VERSION, f.lit(False))
    return lines.groupBy(*schemas.PARTITIONS).agg(
        f.count(f.lit(1)).alias("lines"),
        f.count(f.when(~_is_readable(), True)).alias("unreadable"),
        f.count(f.when(newer, True)).alias("newer"),
    )


def since(feed: DataFrame, first_hour: Column) -> DataFrame:
    """The lines of the hours from `first_hour` on, a timestamp; prunes compacted partitions."""
    return feed.where((f.col("date") >= f.to_date(first_hour)) & (_hour() >= first_hour))


def queue_usage(feed: DataFrame) -> DataFrame:
    """Messages and bytes per hour, vhost and queue (schemas.QUEUE_USAGE), in that order.

    A line counts for the hour of its file. Hours in which a queue only held messages, and none
    came or went, are left out; so are peeks at an empty queue.
    """
    rows = (
        feed.where(f.col("kind") == "queue")
        .groupBy(_hour().alias("hour"), "vhost", f.col("name").alias("queue"))
        .agg(
            _sum("publish").alias("messages_in"),
            _sum("publish_bytes").alias("bytes_in"),
            _sum("deliver", "deliver_no_ack", "get", "get_no_ack").alias("messages_out"),
            _sum("deliver_bytes").alias("bytes_out"),
            _sum("ack").alias("acknowledged"),
            _sum("redeliver").alias("redelivered"),
            # Lines of older brokers tell only what was held at their end.
            f.coalesce(f.max(f.greatest("messages_peak", "messages")), f.lit(0)).alias(
                "messages_peak"
            ),
        )
    )
    moved = f.col("messages_in") + f.col("messages_out") + f.col("acknowledged")
    return rows.where(moved > 0).orderBy("hour", "vhost", "queue")


def _is_readable() -> Column:
    known = f.coalesce(f.col("v") <= schemas.FEED_VERSION, f.lit(False))
    return known & f.col(schemas.UNREADABLE).isNull()


def _hour() -> Column:
    """The hour of a line's file as a timestamp; the session's time zone is UTC."""
    text = f.format_string("%s %02d:00:00", f.col("date").cast("string"), f.col("hour"))
    return f.to_timestamp(text, "yyyy-MM-dd HH:mm:ss")


def _sum(*names: str) -> Column:
    total = f.lit(0).cast("long")
    for name in names:
        total = total + f.coalesce(f.col(name), f.lit(0))
    return f.coalesce(f.sum(total), f.lit(0))
