"""What charts of a result show: totals of its objects, their shares over time, hours of the week.

Everything is added up over all rows that match, by Arrow, a row group at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from .measures import Column
from .pages import Result, Where, joined, row_groups, spelled, without_rows
from .shapes import View

TOP = 10
STACKED = 6
BARS_MAX = 62
STEPS = ("", "day", "month")
CHARTED_KINDS = ("count", "bytes", "money")
NEVER_ADDED = ("days",)
"""Counts of which a sum over objects says nothing."""
HOURS_A_WEEK = 7 * 24


@dataclass(frozen=True)
class Total:
    """An object, by the values of its keys, and its sum. Without keys: all others together."""

    keys: tuple[str, ...]
    value: int
    others: int = 0


@dataclass(frozen=True)
class Stack:
    """Sums at a time (UTC): of each object that has its own line, then of all others."""

    at: datetime
    values: tuple[int, ...]


def measures(view: View) -> list[Column]:
    """The columns that charts can add up."""
    return [
        column
        for column in view.columns
        if column.kind in CHARTED_KINDS and column.name not in NEVER_ADDED
    ]


def measure(view: View, wanted: str = "") -> Column | None:
    """The column that is wanted, or else that by which rows are sorted, or else the first one."""
    known = {column.name: column for column in measures(view)}
    sorted_by = [name[1:] for name in view.order if name.startswith("-") and name[1:] in known]
    names = [wanted, *sorted_by, *known]
    return next((known[name] for name in names if name in known), None)


def totals(result: Result, view: View, by: Column, where: Where, count: int = TOP) -> list[Total]:
    """The `count` objects with the greatest sums, greatest first, and all others as one, if there
    are."""
    keys = [name for name, _ in view.keys]
    table = _grouped(result.files, tuple(keys), by.name, where, "")
    order = [("value", "descending"), *((name, "ascending") for name in keys)]
    table = table.filter(_positive(table)).sort_by(order)
    top = [Total(tuple(row[:-1]), row[-1]) for row in _rows(table.slice(0, count))]
    rest = table.slice(count)
    if len(rest):
        top.append(Total((), sum(rest["value"].to_pylist()), len(rest)))
    return top


def greatest(result: Result, view: View, by: Column, where: Where, count: int) -> Where:
    """The rows of `where` that are of the `count` objects with the greatest sums."""
    told = totals(result, view, by, where, count)
    keys = tuple(name for name, _ in view.keys)
    return replace(where, keys=keys, objects=tuple(one.keys for one in told if one.keys))


def stacks(
    result: Result, view: View, by: Column, where: Where, told: Sequence[Total]
) -> list[Stack]:
    """Sums over time, by hours, days or months: as many as fit into a chart."""
    for step in STEPS:
        if len(_grouped(result.files, (view.time,), by.name, where, step)) <= BARS_MAX:
            break
    keys = tuple(name for name, _ in view.keys)
    objects = tuple(one.keys for one in told)
    found: dict[datetime, list[int]] = {}
    for at, number, value in _rows(
        _told_apart(result.files, (view.time, *keys), by.name, where, step, objects)
    ):
        found.setdefault(at.astimezone(UTC), [0] * (len(told) + 1))[number] += value or 0
    return [Stack(at, tuple(values)) for at, values in sorted(found.items())]


def week(result: Result, view: View, by: Column, where: Where) -> list[float | None]:
    """The mean sum of each hour of the week, Monday's first (UTC); None where there was none.

    An object has no row for an hour in which nothing came or went, so that each hour counts from
    the first one that the whole result has a row of to the last.
    """
    times = [at for at, _ in _rows(_grouped(result.files, (view.time,), by.name, Where(), ""))]
    if not times:
        return [None] * HOURS_A_WEEK
    sums, counts = [0] * HOURS_A_WEEK, [0] * HOURS_A_WEEK
    for at, value in _rows(_grouped(result.files, (view.time,), by.name, where, "")):
        sums[_hour_of_week(at)] += value or 0
    first, hours = min(times), (max(times) - min(times)) // timedelta(hours=1) + 1
    for place in range(HOURS_A_WEEK):
        counts[(_hour_of_week(first) + place) % HOURS_A_WEEK] = (
            hours + HOURS_A_WEEK - 1 - place
        ) // HOURS_A_WEEK
    return [one / count if count else None for one, count in zip(sums, counts, strict=True)]


def _hour_of_week(at: datetime) -> int:
    hour = at.astimezone(UTC)
    return hour.weekday() * 24 + hour.hour


def _positive(table: Any) -> Any:
    import pyarrow.compute as pc

    return pc.fill_null(pc.greater(table["value"], 0), False)


def _rows(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@functools.lru_cache(maxsize=32)
def _grouped(
    files: tuple[Path, ...], keys: tuple[str, ...], name: str, where: Where, step: str
) -> Any:
    """One row for each value of the keys, with the sum as `value`; times at the start of a step."""
    import pyarrow as pa

    tables = _stepped(files, {*keys, name}, where, keys[0], step)
    whole = pa.concat_tables([_summed(table, keys, name) for table in tables])
    return _summed(whole, keys, "value")


@functools.lru_cache(maxsize=32)
def _told_apart(
    files: tuple[Path, ...],
    keys: tuple[str, ...],
    name: str,
    where: Where,
    step: str,
    objects: tuple[tuple[str, ...], ...],
) -> Any:
    """One row for each time, the first of the keys, and number in `objects`, by the other keys; the
    sum of all others has the next number. A row group is summed before the next one is read: a
    result may have any number of objects, and what is kept of it has a few rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = spelled(objects)
    parts = []
    for table in _stepped(files, {*keys, name}, where, keys[0], step):
        place = pc.index_in(joined(table, keys[1:]), value_set=names)
        number = pc.fill_null(place, len(objects))
        told = pa.table({keys[0]: table[keys[0]], "object": number, name: table[name]})
        parts.append(_summed(told, (keys[0], "object"), name))
    return _summed(pa.concat_tables(parts), (keys[0], "object"), "value")


def _stepped(
    files: tuple[Path, ...], names: set[str], where: Where, time: str, step: str
) -> Iterator[Any]:
    """These columns of each row group that match, with times at the start of a step; of a result
    without a row, an empty table."""
    import pyarrow.compute as pc

    has_groups = False
    for file, index in row_groups(files):
        has_groups = True
        table = file.read_row_group(index, columns=list({*names, *where.columns()}))
        table = table if where.all else table.filter(where.mask(table))
        if step:
            floored = pc.floor_temporal(table[time], unit=step)
            table = table.set_column(table.column_names.index(time), time, floored)
        yield table
    if not has_groups:
        yield without_rows(files, names)


def _summed(table: Any, keys: tuple[str, ...], name: str) -> Any:
    """The sums of a column for each value of the keys, as `value`."""
    grouped = table.group_by(list(keys)).aggregate([(name, "sum")])
    return grouped.select([*keys, f"{name}_sum"]).rename_columns([*keys, "value"])
