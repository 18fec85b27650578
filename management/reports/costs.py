"""The cost statement on Spark: quantities by month, priced; closed months as they were closed.

Amounts are integers, millionths of the currency, rounded half up once for each item of a row. Only
the DataFrame API is used, so that Spark Connect runs it too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from . import folding
from .catalog import COST
from .columns import HELD
from .ledger import Closed, Ledger
from .measures import DELIVERED, DELIVERED_BYTES
from .shapes import View
from .tariff import ITEMS, Tariff

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What is charged, as columns of the statement's quantities.
CHARGED = {
    "messages": ("messages_in", "messages_out"),
    "bytes": ("bytes_in", "bytes_out"),
    "storage": ("held",),
    "connections": ("connected",),
}
QUANTITIES = tuple(name for names in CHARGED.values() for name in names)
AMOUNTS = tuple(f"cost_{item}" for item in ITEMS)

WIDE = "decimal(38,0)"

# Where each quantity comes from, by view: the kind of rows and their columns.
_TAKEN_OUT = {"messages_out": DELIVERED, "bytes_out": DELIVERED_BYTES}
SOURCES: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "vhost": {
        "messages_in": ("exchange", ("publish_in",)),
        "bytes_in": ("exchange", ("publish_in_bytes",)),
        **{name: ("queue", columns) for name, columns in _TAKEN_OUT.items()},
        "held": ("queue", (HELD,)),
        "connected": ("user", ("connection_ms",)),
    },
    "user": {
        "messages_in": ("user", ("publish",)),
        "bytes_in": ("user", ("publish_bytes",)),
        **{name: ("user", columns) for name, columns in _TAKEN_OUT.items()},
        "held": ("user", ()),
        "connected": ("user", ("connection_ms",)),
    },
}


def priced(rows: DataFrame, view: View, tariffs: Sequence[Tariff]) -> DataFrame:
    """Rows of months as quantities and amounts by month and object. Without a tariff for its month,
    an amount is null.
    """
    sums = [_summed(name, *SOURCES[view.name][name]) for name in QUANTITIES]
    keys = [name for name, _ in view.keys]
    grouped = (
        rows.where(f.col("kind").isin("exchange", "queue", "user"))
        .groupBy(f.col("at").alias("month"), *(f.col(key).alias(name) for name, key in view.keys))
        .agg(*sums)
        .where(functools.reduce(lambda one, other: one + other, map(f.col, QUANTITIES)) > 0)
    )
    with_amounts = grouped.select(
        "month",
        *keys,
        *QUANTITIES,
        _in_force(tariffs, lambda one: f.lit(one.currency)).alias("currency"),
        *(_amount(item, tariffs).alias(f"cost_{item}") for item in ITEMS),
    )
    return with_amounts.withColumn("cost", _added(AMOUNTS))


def statement(live: DataFrame, closed: DataFrame | None, view: View) -> DataFrame:
    """The statement's rows: those of closed months as they were closed, and beside them what the
    tables hold more by now; those of other months as they are.
    """
    keys = ["month", *(name for name, _ in view.keys)]
    if closed is None:
        rows = live.withColumns(
            {"state": f.lit("open"), "late_messages": _zero(), "late_cost": _zero()}
        )
        return _shown(rows, keys)
    old = closed.select(*keys, *(f.col(name).alias(f"old_{name}") for name in _values(keys, live)))
    months = closed.select("month").distinct().withColumn("is_closed", f.lit(True))
    both = live.join(old.withColumn("was", f.lit(True)), keys, "full_outer")
    both = both.join(f.broadcast(months), ["month"], "left").cache()
    is_closed, was = f.coalesce("is_closed", f.lit(False)), f.coalesce("was", f.lit(False))
    late = [
        f.greatest(_number(name) - _number(f"old_{name}"), _zero())
        for name in (*CHARGED["messages"], "cost")
    ]
    columns: dict[str, Expression] = {
        "state": f.when(is_closed, "closed").otherwise("open"),
        "late_messages": f.when(is_closed, late[0] + late[1]).otherwise(_zero()),
        "late_cost": f.when(is_closed, late[2]).otherwise(_zero()),
    }
    for name in _values(keys, live):
        kept = f.when(was, f.col(f"old_{name}"))
        # Of an object that was only heard of after its month was closed, nothing is charged.
        new = f.col(name) if name == "currency" else f.lit(0).cast(live.schema[name].dataType)
        columns[name] = f.when(is_closed, kept.when(~was, new)).otherwise(f.col(name))
    return _shown(both.withColumns(columns), keys)


def close_months(
    rows: DataFrame,
    ledger: Ledger,
    tariffs: Sequence[Tariff],
    months: Collection[datetime],
    now_ms: int,
) -> list[str]:
    """Close those of the months that have a tariff; which. Raises OSError and Spark's errors.

    `rows` are months of all virtual hosts.
    """
    known = {closed.month for closed in ledger.months()}
    due = {
        f"{month:%Y-%m}": month
        for month in months
        if f"{month:%Y-%m}" not in known and any(one.begins <= month for one in tariffs)
    }
    if not due:
        return []
    import pyarrow.compute as pc

    chosen = rows.where(f.col("at").isin(*due.values()))
    tables = {view.name: priced(chosen, view, tariffs).toArrow() for view in COST.views}
    for name, month in sorted(due.items()):
        tariff = next(one for one in reversed(tariffs) if one.begins <= month)
        parts = {
            view: table.filter(pc.equal(pc.strftime(table["month"], "%Y-%m"), name))
            for view, table in tables.items()
        }
        ledger.close(Closed(month=name, at=now_ms, tariff=tariff), parts)
    return sorted(due)


def closed_rows(spark: SparkSession, paths: Sequence[Path], vhost: str = "") -> DataFrame | None:
    """The rows of closed months, None if there are none."""
    if not paths:
        return None
    rows = spark.read.parquet(*(folding.uri(path) for path in paths))
    return rows.where(f.col("vhost") == f.lit(vhost)) if vhost else rows


def due(months: Iterable[datetime], now: datetime, after_seconds: int) -> list[datetime]:
    """Those of the months that have been over for so long."""
    limit = now.timestamp() - after_seconds
    return [month for month in months if _next(month).timestamp() <= limit]


def _next(month: datetime) -> datetime:
    return datetime(month.year + month.month // 12, month.month % 12 + 1, 1, tzinfo=UTC)


def _values(keys: Sequence[str], live: DataFrame) -> list[str]:
    return [name for name in live.columns if name not in keys]


def _shown(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """In the units of the page: GB-hours."""
    unit = float(ITEMS["storage"][1])
    storage = f.round(f.col("held").cast("double") / unit, 6)
    return rows.withColumn("storage", storage).withColumn("currency", _text("currency"))


def _text(name: str) -> Expression:
    return f.coalesce(f.col(name), f.lit(""))


def _zero() -> Expression:
    return f.lit(0).cast("long")


def _number(name: str) -> Expression:
    return f.coalesce(f.col(name).cast("long"), _zero())


def _summed(name: str, kind: str, columns: tuple[str, ...]) -> Expression:
    value = functools.reduce(
        lambda one, other: one + other, (f.col(column).cast(WIDE) for column in columns), f.lit(0)
    )
    total = f.coalesce(f.sum(f.when(f.col("kind") == kind, value)), f.lit(0))
    return total.cast(WIDE if name == "held" else "long").alias(name)


def _added(names: Iterable[str]) -> Expression:
    return functools.reduce(lambda one, other: one + other, map(f.col, names))


def _in_force(tariffs: Sequence[Tariff], value: Callable[[Tariff], Expression]) -> Expression:
    """A value of the tariff that is in force in a row's month, or null."""
    chosen = f.lit(None)
    for one in sorted(tariffs, key=lambda tariff: tariff.since):
        chosen = f.when(f.col("month") >= f.lit(one.begins), value(one)).otherwise(chosen)
    return chosen


def _amount(item: str, tariffs: Sequence[Tariff]) -> Expression:
    """Quantity by price, divided by the unit, rounded half up; in integers, because a fraction of a
    binary number is not a price.
    """
    unit = ITEMS[item][1]
    price = _in_force(tariffs, lambda one: f.lit(one.price(item))).cast("decimal(16,0)")
    quantity = _added(CHARGED[item]).cast("decimal(22,0)")
    twice = quantity * price * f.lit(2) + f.lit(unit)
    return f.call_function("div", twice, f.lit(2 * unit).cast("decimal(20,0)")).cast("long")
