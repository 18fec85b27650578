"""Folds rows of the usage tables: hours into days and months, files of a day into one. On Spark.

Every number merges by its column's rule, so new hours are folded into the days and months that are
there: a run reads the new hours, and the one month of days and year of months they belong to.

Only the DataFrame API is used (no RDD, no JVM objects), so that Spark Connect runs it too.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pyarrow.parquet
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from .columns import FEED_HELD, HELD, HELD_DIVISOR, HOURS_ONLY, IDENTITY, MERGED
from .tables import GRAINS, Grain, Tables, Written

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROW = StructType(
    [
        StructField("at", TimestampType()),
        *(StructField(name, StringType()) for name in IDENTITY),
        *(StructField(name, LongType()) for name in MERGED),
    ]
)

# Numbers that differ little from row to row take a few bits each with this version's encodings.
WRITE_OPTIONS = {"parquet.writer.version": "PARQUET_2_0"}

# The column that says which file a row goes to.
PLACE = "place"

# How the rows of a table file are sorted.
FILE_ORDER = (*IDENTITY, "at")


class FoldFailed(Exception):
    """Spark did not write what it was given to write; nothing has changed."""


def read(
    spark: SparkSession, paths: Collection[Path | str], columns: Collection[str] = tuple(MERGED)
) -> DataFrame:
    """Rows of table files with some of their numbers; what a file lacks is zero. Files are paths,
    or addresses that Spark takes as they are."""
    wanted = {HELD if name == FEED_HELD else name for name in columns}
    chosen = [name for name in MERGED if name in wanted]
    schema = StructType([ROW[name] for name in ("at", *IDENTITY, *chosen)])
    if not paths:
        return spark.createDataFrame([], schema)
    if HELD not in chosen:
        return _filled(spark.read.schema(schema).parquet(*(uri(path) for path in paths)), chosen)
    # Files of the first programs with tables hold byte milliseconds.
    schema = StructType([*schema, StructField(FEED_HELD, LongType())])
    rows = spark.read.schema(schema).parquet(*(uri(path) for path in paths))
    return _seconds(_filled(rows, [*chosen, FEED_HELD]))


def shipped(spark: SparkSession, paths: Collection[Path]) -> DataFrame:
    """Rows of table files that only this process can read: it sends them to Spark."""
    wide = StructType([*ROW, StructField(FEED_HELD, LongType())])
    parts = [pyarrow.parquet.read_table(path) for path in paths]
    if not parts:
        return spark.createDataFrame([], ROW)
    rows = spark.createDataFrame(pyarrow.concat_tables(parts, promote_options="default"))
    columns = [
        (f.col(one.name) if one.name in rows.columns else f.lit(None))
        .cast(one.dataType)
        .alias(one.name)
        for one in wide
    ]
    return _seconds(_filled(rows.select(*columns), [*MERGED, FEED_HELD]))


def _seconds(rows: DataFrame) -> DataFrame:
    """Byte milliseconds of old files as byte seconds."""
    held = f.col(HELD) + f.floor(f.col(FEED_HELD) / HELD_DIVISOR).cast("long")
    return rows.withColumn(HELD, held).drop(FEED_HELD)


def _filled(rows: DataFrame, numbers: list[str]) -> DataFrame:
    return rows.fillna(0, numbers).fillna("", list(IDENTITY))


def merged(rows: DataFrame, *keys: str) -> DataFrame:
    """One row for each object and value of the keys, by the rules of the columns."""
    numbers = [name for name in rows.columns if name in MERGED]
    return rows.groupBy(*keys, *IDENTITY).agg(*(_rule(name) for name in numbers))


def fold_in(
    spark: SparkSession,
    tables: Tables,
    hours: Collection[tuple[datetime, Path]],
    today: date,
    work: Path,
) -> list[Written]:
    """New hours merged into days and months; past days of several files made into one file.

    `hours` are files of rows and the hours they hold; those of `today` and later only count for
    days and months here. Writes into `work`. Raises FoldFailed and Spark's errors.
    """
    days = {hour.date() for hour, _ in hours}
    closing = _closing_days(tables, days, today)
    periods = {("day", f"{day:%Y-%m}") for day in days} | {("month", f"{day:%Y}") for day in days}
    old = [file for file in tables.manifest.files if (file.grain, file.period) in periods]
    loose = [file for file in tables.files("hour") if file.period[:10] in closing]
    new = [path for _, path in hours]
    columns = {name for file in (*old, *loose) for name in file.columns}
    columns.update(name for path in new for name in pyarrow.parquet.read_schema(path).names)

    parts = [_folded(read(spark, new, columns))]
    for grain in ("day", "month"):
        if kept := [file for file in old if file.grain == grain]:
            parts.append(placed(read(spark, tables.paths(kept), columns), grain))
    past = [path for hour, path in hours if hour.date() < today]
    if past or loose:
        files = [*past, *tables.paths(loose)]
        parts.append(placed(read(spark, files, columns), "hour"))
    rows = functools.reduce(lambda one, other: one.unionByName(other), parts)
    return write_places(merged(rows, PLACE, "at"), FILE_ORDER, work / "folded")


def rebuild(spark: SparkSession, tables: Tables, work: Path) -> list[Written]:
    """All days and months anew from the hours, and from the days whose hours are gone."""
    hours = tables.files("hour")
    if not hours:
        return []
    first = datetime.strptime(hours[0].period[:10], "%Y-%m-%d").replace(tzinfo=UTC)
    older = [file for file in tables.files("day") if file.period <= f"{first:%Y-%m}"]
    columns = {name for file in (*hours, *older) for name in file.columns}
    rows = _lasting(read(spark, tables.paths(hours), columns))
    days = merged(placed(rows.withColumn("at", f.date_trunc("day", "at")), "day"), PLACE, "at")
    if older:
        before = read(spark, tables.paths(older), columns).where(f.col("at") < f.lit(first))
        days = days.unionByName(placed(before, "day"))
    written = write_places(days, FILE_ORDER, work / "days")
    folded = read(spark, [one.path for one in written], columns)
    folded = folded.withColumn("at", f.date_trunc("month", "at"))
    months = merged(placed(folded, "month"), PLACE, "at")
    return written + write_places(months, FILE_ORDER, work / "months")


def floored(hours: DataFrame, grain: Grain) -> DataFrame:
    """Hours as rows of a grain: each at the time that its day or month begins, not merged."""
    return hours if grain == "hour" else _lasting(hours).withColumn("at", f.date_trunc(grain, "at"))


def uri(path: Path | str) -> str:
    """A path to read as Spark takes it: on a file system, and no pattern whatever its name."""
    if isinstance(path, str):
        return path
    return "file://" + re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path))


def _closing_days(tables: Tables, days: Iterable[date], today: date) -> set[str]:
    """Past days that new hours belong to, or whose hours still lie in files of their own."""
    found = {f"{day:%Y-%m-%d}" for day in days if day < today}
    for file in tables.files("hour"):
        if len(file.period) > 10 and file.period[:10] < f"{today:%Y-%m-%d}":
            found.add(file.period[:10])
    return found


def _lasting(rows: DataFrame) -> DataFrame:
    return rows.where(~f.col("kind").isin(*HOURS_ONLY))


def _folded(hours: DataFrame) -> DataFrame:
    """Each row twice: at the beginning of its day and of its month."""
    day, month = f.date_trunc("day", "at"), f.date_trunc("month", "at")
    place = f.explode(
        f.array(
            f.struct(day.alias("at"), _place("day").alias("place")),
            f.struct(month.alias("at"), _place("month").alias("place")),
        )
    )
    each = _lasting(hours).withColumn("placed", place)
    return (
        each.withColumn("at", f.col("placed.at"))
        .withColumn(PLACE, f.col("placed.place"))
        .drop("placed")
    )


def placed(rows: DataFrame, grain: Grain, time: str = "at") -> DataFrame:
    """The rows with PLACE, which file of a grain's tables the moment `time` belongs to."""
    return rows.withColumn(PLACE, _place(grain, time))


def _place(grain: Grain, time: str = "at") -> Column:
    """The file that a row goes to, as a number: 120261121, 2202611, 32026. Hours as texts would
    cost more than all sums.
    """
    digits = f.year(time)
    if grain != "month":
        digits = digits * 100 + f.month(time)
    if grain == "hour":
        digits = digits * 100 + f.dayofmonth(time)
    return digits + {"hour": 10**8, "day": 2 * 10**6, "month": 3 * 10**4}[grain]


def _rule(name: str) -> Column:
    rule = MERGED[name]
    if rule == "last":
        return f.max_by(name, "until").alias(name)
    return {"sum": f.sum, "max": f.max, "min": f.min}[rule](name).alias(name)


def write_places(
    rows: DataFrame,
    order: Sequence[Column | str],
    directory: Path,
    options: Mapping[str, str] = WRITE_OPTIONS,
) -> list[Written]:
    """One file below `directory` for each PLACE that has rows, sorted by `order`. Raises FoldFailed
    and Spark's errors.
    """
    shutil.rmtree(directory, ignore_errors=True)
    (
        rows.repartition(PLACE)
        .sortWithinPartitions(PLACE, *order)
        .write.options(**options)
        .partitionBy(PLACE)
        .parquet(f"file://{directory}")  # a path to write to is no pattern
    )
    written = []
    for folder in sorted(directory.glob(f"{PLACE}=*")):
        number = folder.name.removeprefix(f"{PLACE}=")
        grain = GRAINS[int(number[0]) - 1]
        period = "-".join([number[1:5], *re.findall("..", number[5:])])
        files = list(folder.glob("*.parquet"))
        if len(files) != 1:
            raise FoldFailed(f"Spark wrote {len(files)} files for {grain} {period}, not one")
        written.append(Written(grain, period, files[0]))
    return written
