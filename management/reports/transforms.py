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
from pyspark.sql import DataFrame, Window
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

# A day or hour of which the feed covers less is no point of a line: what a queue holds that stands
# still is in a line up to a minute later, which would be missing from its mean.
COVERED_LEAST = 1800

# A queue that holds something is written in the first round of each run of the broker, then once a
# minute or, where rounds are rarer, in each of them; these are an hour apart at most. So a queue of
# which nothing was written for longer, while other lines were, holds nothing any more.
SILENT_MS = 2 * 3_600_000


def transformed(
    report: Report,
    rows: DataFrame,
    view: View,
    first: datetime,
    end: datetime | None,
    free: int = 0,
    vhost: str = "",
) -> DataFrame:
    """What a report computes of the rows of one virtual host or all; `rows` are of all of them.
    `free`: bytes on the disk, for a report that wants them.
    """
    function = getattr(importlib.import_module(f"{__package__}.{report.module}"), report.transform)
    further: list[DataFrame | int] = []
    if report.wants_cover:
        further.append(cover(within(rows, first, end)))
    if report.wants_disk:
        further.append(free)
    chosen = rows.where(f.col("vhost") == f.lit(vhost)) if vhost else rows
    frame: DataFrame = function(chosen, view, first, end, *further)
    return frame


def cover(rows: DataFrame) -> DataFrame:
    """What time the feed covers, by rows of all kinds and virtual hosts: one row for each hour,
    day or month (`at`), the `seconds` from its first line to its last, and when that one was
    (`heard`). Lines of a clock that was ahead have times that are still to come; these are left
    out of `heard`.
    """
    now = f.unix_millis(f.current_timestamp())
    span = f.greatest(f.max("until") - f.min("since"), f.lit(1))
    heard = f.max(f.when(f.col("until") <= now, f.col("until")))
    return rows.groupBy("at").agg((span / 1000).alias("seconds"), heard.alias("heard"))


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


def backlog(
    rows: DataFrame, view: View, first: datetime, end: datetime | None, covered: DataFrame
) -> DataFrame:
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
        f.max("until").alias("told"),
    )
    grouped = without_gone(grouped, covered, ("held", "held_bytes", "consumers"))
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


def without_gone(queues: DataFrame, covered: DataFrame, levels: Iterable[str]) -> DataFrame:
    """Queues by when each was written of last (`told`), with zero as the `levels` of those that are
    gone. A broker that is killed takes queues with it (exclusive ones, and those that are not
    durable), and no line says so. Of a queue that held nothing when it was written of last, nothing
    else is known: it may stand still with its consumers.
    """
    heard = covered.agg(f.max("heard").alias("heard"))
    silent = f.coalesce(f.col("told") < f.col("heard") - SILENT_MS, f.lit(False))
    gone = silent & (f.col("held") > 0)
    zero = f.lit(0).cast("long")
    return (
        queues.crossJoin(f.broadcast(heard))
        .withColumns({name: f.when(gone, zero).otherwise(f.col(name)) for name in levels})
        .drop("told", "heard")
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


def growth(
    rows: DataFrame, view: View, first: datetime, end: datetime | None, covered: DataFrame
) -> DataFrame:
    """A straight line through the bytes that are held on average each day, by least squares, and
    its band: 1.96 standard errors to both sides. An object that has rows on fewer than three days
    has none.
    """
    line = _trend(within(rows, first, end), covered, first, keys_of(view))
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


def _trend(
    rows: DataFrame, covered: DataFrame, first: datetime, keys: list[Expression]
) -> DataFrame:
    """A line through the bytes held on average each day, by least squares, for each value of the
    keys. On a day without a row nothing was held, from the first day with one on.
    """
    held = rows.where(f.col("kind") == "queue").groupBy("at", *keys).agg(f.sum(HELD).alias("held"))
    names = held.columns[1:-1]
    days = _days(covered, first)
    told = (
        held.join(days, "at")
        .withColumn("held", f.col("held") / f.col("seconds"))
        .groupBy(*names)
        .agg(
            f.min("at").alias("begun"),
            f.count("day").alias("told"),
            f.max("day").alias("told_last"),
            f.max_by("held", "day").alias("held_last"),
            f.regr_avgx("held", "day").alias("told_middle"),
            f.regr_avgy("held", "day").alias("told_mean"),
            f.regr_sxy("held", "day").alias("told_product"),
            f.regr_syy("held", "day").alias("told_variation"),
        )
        .where(f.col("told") >= 3)
    )
    return _line(told.join(days.withColumnRenamed("at", "begun"), "begun"))


def _days(covered: DataFrame, first: datetime) -> DataFrame:
    """The days that the feed covers, as a number (`day`), and what a line through all of them from
    that day on needs: how many, the last one, their mean, and the sum of squares around it.
    """
    # Days since the first one: squares of days since 1970 would lose the digits that count.
    day = (f.unix_seconds("at") - f.lit(int(first.timestamp()))) / SECONDS_A_DAY
    later = (
        Window.partitionBy(f.lit(0))
        .orderBy(f.desc("day"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    long_enough = covered.where(f.col("seconds") >= COVERED_LEAST)
    return long_enough.select("at", "seconds", day.alias("day")).select(
        "*",
        f.count("day").over(later).alias("days"),
        f.max("day").over(later).alias("last_day"),
        f.avg("day").over(later).alias("middle"),
        (f.var_pop("day").over(later) * f.count("day").over(later)).alias("spread"),
    )


def _line(told: DataFrame) -> DataFrame:
    """The line through days with a row and days without, on which nothing was held. Rows of zeros
    would be more than all others, so these days are added to the sums instead: they move the mean
    of what was held, and with it the sums of squares around it.
    """
    count, mean = f.col("told"), f.col("told_mean")
    whole = count * mean / f.col("days")
    product = f.col("told_product") + count * (f.col("told_middle") - f.col("middle")) * mean
    variation = (
        f.col("told_variation")
        + count * (mean - whole) * (mean - whole)
        + (f.col("days") - count) * whole * whole
    )
    is_last = f.col("told_last") == f.col("last_day")
    line = (
        told.withColumn("last", f.when(is_last, f.col("held_last")).otherwise(f.lit(0.0)))
        .withColumn("growth", product / f.col("spread"))
        .withColumn("start", whole - f.col("growth") * f.col("middle"))
        .withColumn("variation", variation)
    )
    rest = f.col("variation") - f.col("growth") * f.col("growth") * f.col("spread")
    error = f.sqrt(f.greatest(rest, f.lit(0.0)) / (f.col("days") - 2))
    return line.withColumn("error", error).withColumn(
        "slope_band", WIDTH * f.col("error") / f.sqrt(f.col("spread"))
    )


def disk(
    rows: DataFrame,
    view: View,
    first: datetime,
    end: datetime | None,
    covered: DataFrame,
    free: int,
) -> DataFrame:
    """When `free` bytes are used up by the growth of what all queues hold, one row; seconds are
    counted from now on.
    """
    line = _trend(within(rows, first, end), covered, first, [f.lit("").alias("vhost")])
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
