"""Rates and samples in the shape of RabbitMQ's `message_stats` and `X_details`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from broker.stats import Gauge, Stats, Totals, sample_details
from broker.stats.gauges import DELIVERING
from broker.stats.reading import counters_now

Age = Sequence[Any]
"""How far back and how far apart, in seconds; and where from, if not from memory."""

Ages = Mapping[str, Age]

_DELIVERING = frozenset(DELIVERING)
_LONGEST_S = 366 * 86_400
_SAMPLES_MAX = 2_000


def message_stats(
    names: Iterable[str],
    counters: Mapping[str, float],
    source: Gauge | Totals | None,
    ages: Ages,
    now: int,
) -> dict[str, Any]:
    """Each counter with its `X_details`; `deliver_get` is all that went to consumers and gets."""
    age = ages.get("msg_rates")
    if age is None:
        return counters_now(names, counters, source)
    stats: dict[str, Any] = {}
    for name in names:
        stats[name] = int(counters.get(name, 0))
        stats[f"{name}_details"] = details(name, source, age, now)
    if stats.keys() >= _DELIVERING:
        stats["deliver_get"] = sum([stats[name] for name in DELIVERING])
        stats["deliver_get_details"] = _summed([stats[f"{name}_details"] for name in DELIVERING])
    return stats


def stats_key(
    field: str,
    names: Sequence[str],
    source: Callable[[Any], Gauge | Totals | None],
    counters: Callable[[Any], Mapping[str, float]],
) -> Callable[[Any], Any] | None:
    """What things are sorted by where the field is a counter of `message_stats` or its rate, of
    these names or `deliver_get`; None for other fields."""
    top, _, inner = field.partition(".")
    name, _, rate = inner.partition("_details.")
    parts = DELIVERING if name == "deliver_get" else (name,)
    if top != "message_stats" or not set(parts) <= set(names):
        return None
    if rate == "rate":

        def rate_of(thing: Any) -> float:
            known = source(thing)
            return 0.0 if known is None else round(sum([known.rate(part) for part in parts]), 3)

        return rate_of
    if inner != name:
        return None

    def count_of(thing: Any) -> int:
        counts = counters(thing)
        return int(sum([counts.get(part, 0) for part in parts]))

    return count_of


def counters_in(columns: Iterable[str] | None, names: Sequence[str]) -> tuple[str, ...]:
    """The counters of `message_stats`, of these, that the columns name or that what they name is
    made of; all of them where no columns are chosen."""
    if columns is None:
        return tuple(names)
    wanted: set[str] = set()
    for column in columns:
        top, _, inner = column.partition(".")
        if top == "message_stats":
            name = inner.partition(".")[0].removesuffix("_details")
            wanted |= set(DELIVERING if name == "deliver_get" else (name,) if name else names)
    return tuple(name for name in names if name in wanted)


def details(
    name: str,
    source: Gauge | Totals | None,
    age: Age | None = None,
    now: int = 0,
) -> dict[str, object]:
    """`X_details` of one counter or level."""
    if source is None:
        return {"rate": 0.0}
    series: Any = source.series if isinstance(source, Totals) else source.history
    if age is not None and len(age) > 2:
        series = age[2]
    samples = []
    if age is not None and series is not None:
        samples = series.samples(name, now, *bounded(age))
    return sample_details(source.rate(name), samples)


def bounded(age: Age) -> tuple[int, int]:
    """Age and increment in seconds, clamped so that no answer has more than 2,000 samples."""
    age_s = min(max(age[0], 1), _LONGEST_S)
    increment_s = max(age[1], 1)
    while age_s // increment_s > _SAMPLES_MAX:
        increment_s *= 2
    return age_s, increment_s


def watched(stats: Stats, kind: str, thing: Any, ages: Ages) -> Gauge | None:
    """The gauge of an object; one whose samples are wanted begins to keep them."""
    if ages:
        stats.watch(kind, thing)
    return stats.gauge(kind, thing)


def added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The `X_details` of a sum of two levels."""
    total: dict[str, Any] = {"rate": round(one["rate"] + other["rate"], 3)}
    if "samples" in one and "samples" in other:
        total["samples"] = [
            {"sample": a["sample"] + b["sample"], "timestamp": a["timestamp"]}
            for a, b in zip(one["samples"], other["samples"], strict=True)
        ]
        total["avg"] = one["avg"] + other["avg"]
        total["avg_rate"] = one["avg_rate"] + other["avg_rate"]
    return total


def _summed(parts: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {"rate": round(sum([part["rate"] for part in parts]), 3)}
    if all("samples" in part for part in parts):
        columns = zip(*(part["samples"] for part in parts), strict=True)
        total["samples"] = [
            {"sample": sum(one["sample"] for one in column), "timestamp": column[0]["timestamp"]}
            for column in columns
        ]
        total["avg"] = sum(part["avg"] for part in parts)
        total["avg_rate"] = sum(part["avg_rate"] for part in parts)
    return total
