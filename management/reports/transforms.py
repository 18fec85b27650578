"""What the reports compute: functions from DataFrame to DataFrame, nothing else.

Each is given rows of the usage tables (`folding.ROW`; hours, days or months) from the beginning of
what it has to read on, the view that is asked for, and the range of time. Only the DataFrame API is
used (no RDD, no JVM objects), so that Spark Connect runs them too. They read and write nothing;
`folding` and `results` do.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from datetime import datetime

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from broker.features.usage import records

from .catalog import AHEAD_DAYS, PERCENTILES
from .columns import HELD
from .measures import Column
from .shapes import Report, View

SECONDS_A_DAY = 86_400

# Standard errors to each side that hold 95 % of a normal distribution.
WIDTH = 1.96

# Ways in which messages leave a queue.
LEFT = ("ack", "deliver_no_ack", "get_no_ack", "expired", "dropped", "purge", "reject")

# A disk that is full later than this is not.
FORECAST_DAYS_MAX = 3650


def transformed(
    report: Report,
    rows: DataFrame,
    view: View,
    first: datetime,
    end: datetime | None,
    free: int = 0,
) -> DataFrame:
    """What a report computes of rows; `free`: bytes on the disk, for a report that wants them."""
    function = getattr(importlib.import_module(f"{__package__}.{report.module}"), report.transform)
    frame: DataFrame = function(rows, view, first, end, *((free,) if report.wants_disk else ()))
    return frame


def within(
    rows: DataFrame, first: datetime, end: datetime | None = None, vhost: str = ""
) -> DataFrame:
    """The rows that begin at `first` or later and before `end`, of one virtual host or all."""
    rows = rows.where(f.col("at") >= f.lit(first))
    if end is not None:
        rows = rows.where(f.col("at") < f.lit(end))
    return rows.where(f.col("vhost") == f.lit(vhost)) if vhost else rows


def traffic(rows: DataFrame, view: View, first: datetime, end: datetime | None) -> DataFrame:
    """Sums by hour, day or month and object. Objects that only held messages, and of which none
    came or went, are left out.
    """
    measures = _measures(view)
    grouped = (
        _of_kinds(within(rows, first, end), measures)
        .groupBy(f.col("at").alias(view.time), *keys_of(view))
        .agg(*(_merged(column) for column in measures))
    )
    return grouped.where(any_of(column.name for column in measures if column.merge == "sum"))


def totals(rows: DataFrame, view: View, first: datetime, end: datetime | None) -> DataFrame:
    """Sums by object over the whole range, and when the object was last written of."""
    measures = _measures(view)
    return (
        _of_kinds(within(rows, first, end), measures)
        .groupBy(*keys_of(view))
        .agg(*(_merged(column) for column in measures), f.max("at").alias(view.time))
    )


def changes(rows: DataFrame, view: View, first: datetime, end: datetime | None) -> DataFrame:
    """Sums by object over the range and over what lies before it."""
    measures = _measures(view)
    now = f.col("at") >= f.lit(first)
    kept = _of_kinds(rows if end is None else rows.where(f.col("at") < f.lit(end)), measures)
    sums = [
        _merged(column, ~now if column.name.endswith("_before") else now) for column in measures
    ]
    grouped = kept.groupBy(*keys_of(view)).agg(*sums)
    before = f.col("messages_in_before")
    change = f.when(before > 0, (f.col("messages_in") - before) * 100.0 / before)
    moved = any_of(column.name for column in measures if column.merge == "sum")
    return grouped.where(moved).withColumn("change", f.round(change, 1))


def backlog(rows: DataFrame, view: View, first: datetime, end: datetime | None) -> DataFrame:
    """What queues hold at the end of the range, whether they drain, and what went wrong."""
    queues = within(rows, first, end).where(f.col("kind") == "queue")
    grouped = queues.groupBy(*keys_of(view)).agg(
        *(_merged(column) for column in _measures(view)),
        f.max_by("messages", "until").alias("held"),
        f.max_by("message_bytes", "until").alias("held_bytes"),
        f.max_by("consumers", "until").alias("consumers"),
        f.sum(added(LEFT)).alias("left_queue"),
        f.sum("messages_ms").alias("messages_ms"),
        (f.max("until") - f.min("since")).alias("span"),
    )
    came, left, held = f.col("messages_in"), f.col("left_queue"), f.col("held")
    moved = came + f.col("messages_out") + left
    state = (
        f.when((held > 0) & (f.col("consumers") == 0) & (f.col("messages_out") == 0), "abandoned")
        .when(moved == 0, "idle")
        .when((held > 0) & (came > left), "growing")
        .when((held > 0) & (came < left), "draining")
        .otherwise("steady")
    )
    drain = f.when((held > 0) & (left > came), held * f.col("span") / (left - came))
    return (
        grouped.withColumn("state", state)
        .withColumn("drain", drain.cast("long"))
        .withColumn("mean", f.round(f.col("messages_ms") / f.greatest(f.col("span"), f.lit(1)), 1))
        .select(*view.names)
    )


def latency(rows: DataFrame, view: View, first: datetime, end: datetime | None) -> DataFrame:
    """Percentiles of the time from publish to first delivery, from merged histograms."""
    names = [records.latency_column(bucket) for bucket in range(records.LATENCY_BUCKETS)]
    grouped = (
        within(rows, first, end)
        .where(f.col("kind") == "queue")
        .groupBy(*keys_of(view))
        .agg(
            *(_merged(column) for column in _measures(view)),
            f.sum("latency_ms").alias("all_ms"),
            f.array(*(f.sum(name) for name in names)).alias("buckets"),
        )
    )
    total = f.aggregate("buckets", f.lit(0).cast("long"), lambda sum_, one: sum_ + one)
    counted = grouped.withColumn("deliveries", total).where(f.col("deliveries") > 0)
    mean = f.round(f.col("all_ms") / f.col("deliveries"), 2)
    return counted.select(
        *(f.col(name) for name, _ in view.keys),
        "deliveries",
        mean.alias("mean"),
        *(_percentile(percent).alias(f"p{percent}") for percent in PERCENTILES),
        "longest",
    )


def growth(rows: DataFrame, view: View, first: datetime, end: datetime | None) -> DataFrame:
    """A straight line through the bytes that are held on average each day, by least squares, and
    its band: 1.96 standard errors to both sides. Fewer than three days have none.
    """
    line = _trend(
        within(rows, first, end), first, [f.col(source).alias(name) for name, source in view.keys]
    )
    ahead = f.col("last_day") + AHEAD_DAYS
    reach = f.sqrt(
        1 + 1 / f.col("days") + (ahead - f.col("middle")) * (ahead - f.col("middle"))
        / f.col("spread")
    )  # fmt: skip
    expected = f.col("start") + f.col("growth") * ahead
    band = WIDTH * f.col("error") * reach
    return line.select(
        *(name for name, _ in view.keys),
        "days",
        f.round("last").cast("long").alias("held_bytes"),
        f.round("growth", 1).alias("growth"),
        f.round(f.col("growth") - f.col("slope_band"), 1).alias("growth_low"),
        f.round(f.col("growth") + f.col("slope_band"), 1).alias("growth_high"),
        *(
            f.round(f.greatest(value, f.lit(0.0))).cast("long").alias(name)
            for name, value in (
                ("expected", expected),
                ("expected_low", expected - band),
                ("expected_high", expected + band),
            )
        ),
    )


def _trend(rows: DataFrame, first: datetime, keys: list[Expression]) -> DataFrame:
    """A line through the bytes held each day, by least squares, for each value of the keys."""
    # Days since the first one: squares of days since 1970 would lose the digits that count.
    day = (f.unix_seconds("at") - f.lit(int(first.timestamp()))) / SECONDS_A_DAY
    span = f.greatest(f.col("until") - f.col("since"), f.lit(1)) / 1000
    held = f.sum(f.col(HELD) / span)
    by_day = (
        rows.where(f.col("kind") == "queue")
        .groupBy(*keys, "at")
        .agg(held.alias("held"))
        .withColumn("day", day)
    )
    line = by_day.groupBy(*by_day.columns[: len(keys)]).agg(
        f.count("day").alias("days"),
        f.max_by("held", "day").alias("last"),
        f.max("day").alias("last_day"),
        f.regr_slope("held", "day").alias("growth"),
        f.regr_intercept("held", "day").alias("start"),
        f.regr_avgx("held", "day").alias("middle"),
        f.regr_sxx("held", "day").alias("spread"),
        f.regr_syy("held", "day").alias("variation"),
    )
    rest = f.col("variation") - f.col("growth") * f.col("growth") * f.col("spread")
    error = f.sqrt(f.greatest(rest, f.lit(0.0)) / (f.col("days") - 2))
    line = line.where(f.col("days") >= 3).withColumn("error", error)
    return line.withColumn("slope_band", WIDTH * f.col("error") / f.sqrt(f.col("spread")))


def disk(
    rows: DataFrame, view: View, first: datetime, end: datetime | None, free: int
) -> DataFrame:
    """When `free` bytes are used up by the growth of what all queues hold, one row; seconds are
    counted from now on.
    """
    line = _trend(within(rows, first, end), first, [f.lit("").alias("vhost")])
    slope, band = f.col("growth"), f.col("slope_band")

    def full(growth: Expression) -> Expression:
        seconds = f.lit(float(free)) / growth * SECONDS_A_DAY
        soon = (growth > 0) & (f.lit(float(free)) / growth < FORECAST_DAYS_MAX)
        now = f.unix_seconds(f.current_timestamp())
        return f.when(soon, f.timestamp_seconds((now + seconds).cast("long")))

    return line.select(
        "vhost",
        "days",
        f.round("last").cast("long").alias("held_bytes"),
        f.lit(free).cast("long").alias("free"),
        f.round(slope, 1).alias("growth"),
        f.round(slope - band, 1).alias("growth_low"),
        f.round(slope + band, 1).alias("growth_high"),
        full(slope).alias("full_at"),
        full(slope + band).alias("full_first"),
        full(slope - band).alias("full_last"),
    )


def _percentile(percent: int) -> Expression:
    """The upper end of the first bucket with which `percent` is reached; of the last bucket,
    which has none, the longest time.
    """
    ends = [records.latency_from(bucket) for bucket in range(1, records.LATENCY_BUCKETS)]
    start = f.struct(f.lit(0).cast("long").alias("sum"), f.lit(0).alias("bucket"))
    short = f.aggregate(
        "buckets",
        start,
        lambda so_far, one: f.struct(
            (so_far["sum"] + one).alias("sum"),
            # Buckets are passed for as long as too few deliveries lie in them and before.
            f.when((so_far["sum"] + one) * 100 < f.col("deliveries") * percent,
                   so_far["bucket"] + 1).otherwise(so_far["bucket"]).alias("bucket"),
        ),
    )["bucket"]  # fmt: skip
    limits = f.array(*(f.lit(end).cast("long") for end in ends))
    end = f.when(short < len(ends), f.element_at(limits, short + 1)).otherwise(f.col("longest"))
    return f.least(end, f.greatest(f.col("longest"), f.lit(1)))


def _measures(view: View) -> list[Column]:
    return [column for column in view.columns if column.of]


def keys_of(view: View) -> list[Expression]:
    return [f.col(source).alias(name) for name, source in view.keys]


def _of_kinds(rows: DataFrame, measures: Iterable[Column]) -> DataFrame:
    return rows.where(f.col("kind").isin(*sorted({column.rows for column in measures})))


def _merged(column: Column, when: Expression | None = None) -> Expression:
    """A measure over the rows of its kind, zero if there is none."""
    value = functools.reduce(lambda one, other: one + other, map(f.col, column.of))
    chosen = f.col("kind") == column.rows
    chosen = chosen if when is None else chosen & when
    merge = {"sum": f.sum, "max": f.max}[column.merge]
    return f.coalesce(merge(f.when(chosen, value)), f.lit(0)).alias(column.name)


def any_of(names: Iterable[str]) -> Expression:
    return added(names) > 0


def added(names: Iterable[str]) -> Expression:
    """Columns added up."""
    return functools.reduce(lambda one, other: one + other, map(f.col, names))


def sums_of(view: View) -> list[Expression]:
    """The measures of a view, for an aggregation."""
    return [_merged(column) for column in _measures(view)]
