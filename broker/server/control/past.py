"""The past of the node, a vhost or an object: what is in memory, and before that the files."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from broker.stats import Sample, Series, Totals
from broker.stats.history import NODE_KEY, key_of

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.vhosts.vhost import VHost

LONGEST_S = 366 * 86_400


class Past:
    """Where the past of something is: in memory for an hour at most, in files for a year."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def of_node(
        self, from_ms: int, to_ms: int, series: list[str] | None = None
    ) -> dict[str, Any]:
        totals = self._broker.stats.node
        return await self._told("node", NODE_KEY, totals.series, totals, from_ms, to_ms, series)

    async def of_vhost(
        self, vhost: VHost, from_ms: int, to_ms: int, series: list[str] | None = None
    ) -> dict[str, Any]:
        totals = self._broker.stats.vhost(vhost.name)
        key = vhost.incarnation
        return await self._told("vhost", key, totals.series, totals, from_ms, to_ms, series)

    async def of_object(
        self,
        kind: str,
        thing: Any,
        from_ms: int,
        to_ms: int,
        series: list[str] | None = None,
    ) -> dict[str, Any]:
        """Of a queue, a connection, or a pair of vhost and exchange."""
        vhost, thing = thing if kind == "exchange" else (None, thing)
        kept: Series = self._broker.stats.watch(kind, thing)
        if kind not in ("queue", "exchange") or self._broker.history is None:
            return kept.history(from_ms, to_ms, series)
        key = key_of(kind, thing, vhost)
        return await self._told(kind, key, kept, thing.gauge, from_ms, to_ms, series)

    async def _told(
        self,
        kind: str,
        key: int,
        kept: Series,
        source: Any,
        from_ms: int,
        to_ms: int,
        series: list[str] | None,
    ) -> dict[str, Any]:
        history = self._broker.history
        recent = kept.history(from_ms, to_ms, series)
        if history is None or not history.bytes_max or 0 < kept.first <= from_ms:
            return recent
        if isinstance(source, Totals):
            now = dict(source.levels)
        else:
            now = dict(zip(source.names, source.newest, strict=False))
        found: dict[str, Any] = await asyncio.to_thread(
            history.chart, kind, key, from_ms, to_ms, now
        )
        if not found["times"]:
            return recent
        wanted = [name for name in (series or found["series"]) if name in found["series"]]
        found["series"] = {name: found["series"][name] for name in wanted}
        return _continued(found, recent)


def _continued(found: dict[str, Any], recent: dict[str, Any]) -> dict[str, Any]:
    """The points of the files up to the first one that is in memory, then those: memory knows more,
    also of steps in which an object was left out of the files."""
    times = recent["times"]
    if not times:
        return found
    end = bisect_left(found["times"], times[0])
    nothing = [None] * len(times)
    series = {
        name: values[:end] + recent["series"].get(name, nothing)
        for name, values in found["series"].items()
    }
    # Memory has a point for each step, and the first of them begins where the files end.
    covered = [at - before for before, at in pairwise([times[0] - recent["step_ms"], *times])]
    return found | {
        "times": found["times"][:end] + times,
        "covered_ms": found["covered_ms"][:end] + covered,
        "series": series,
    }


class Samples:
    """What a counter or a level was at times of the past: `Series.samples` over files."""

    def __init__(self, past: dict[str, Any], counters: Mapping[str, float]) -> None:
        self._times: list[int] = past["times"]
        self._values = {
            name: _counted(past, name, counters[name])
            if name in counters and values
            else _filled(values)
            for name, values in past["series"].items()
        }

    def samples(self, name: str, now: int, age_s: int, increment_s: int) -> list[Sample]:
        """Values at every increment back from now, newest first; before all that is known, the
        first known one."""
        values = self._values.get(name)
        if values is None or not self._times:
            return []
        step = increment_s * 1000
        newest = now - now % step
        found = []
        for at in range(newest, newest - age_s * 1000 - 1, -step):
            place = max(0, bisect_right(self._times, at) - 1)
            found.append(Sample(at, values[place]))
        return found


def _filled(levels: list[float | None]) -> list[float]:
    """A level at each time: in a gap what it was before, and before all the first known one."""
    level = next((one for one in levels if one is not None), 0.0)
    found = []
    for one in levels:
        level = level if one is None else one
        found.append(level)
    return found


def _counted(past: dict[str, Any], name: str, now: float) -> list[float]:
    """A counter at each time. The broker counts from zero at its start; here the counter continues
    over restarts from the beginning of the range, so that every difference is true. A rate is that
    of the time that its point covers: while the broker was down, nothing was counted."""
    rates, covered = past["series"][name], past["covered_ms"]
    rises = [
        round((rate or 0.0) * ms / 1000) for rate, ms in zip(rates[1:], covered[1:], strict=True)
    ]
    return list(accumulate(rises, initial=max(0.0, now - sum(rises))))


async def aged(
    ages: Mapping[str, Sequence[Any]], series: Series | None, past: Any, counters: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The ages of a request with the samples of the files, where memory does not reach so far back.
    `past(from_ms, to_ms)` asks for chart data."""
    if not ages or series is None:
        return ages
    now = time.time_ns() // 1_000_000
    longest = max(min(max(int(age[0]), 1), LONGEST_S) for age in ages.values())
    from_ms = now - longest * 1000
    if 0 < series.first <= from_ms:
        return ages
    found = await past(from_ms, now)
    # Within one step of the files they tell less than memory does, however short that reaches back.
    if "begins" not in found or longest * 1000 <= found["step_ms"]:
        return ages
    samples = Samples(found, counters)
    return {name: (age[0], age[1], samples) for name, age in ages.items()}


async def aged_of_object(broker: Broker, view: Any, thing: Any, args: Any) -> Any:
    """The arguments of verb `item` with the samples of the files, as `aged`."""
    if not args.ages:
        return args
    if args.noun == "vhosts":
        totals = broker.stats.vhost(thing.name)
        past = partial(Past(broker).of_vhost, thing)
        ages = await aged(args.ages, totals.series, past, totals.counters)
        return msgspec.structs.replace(args, ages=ages)
    if view.kind not in ("queue", "exchange"):
        return args
    one = thing[1] if view.kind == "exchange" else thing
    series = broker.stats.watch(view.kind, one)
    counters = dict(zip(one.gauge.names, one.gauge.newest, strict=False))
    counters = {name: counters[name] for name in series.counters if name in counters}
    past = partial(Past(broker).of_object, view.kind, thing)
    return msgspec.structs.replace(args, ages=await aged(args.ages, series, past, counters))
