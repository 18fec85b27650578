"""Chart data for a page: which span the URL asks for, and the broker's history of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.http import HttpRequest

from frontend.asking import ask
from management.broker_client import BrokerError

SPARK_POINTS = 60


class Range(NamedTuple):
    """A span that ends now, as the URL names it."""

    name: str
    seconds: int
    words: str


RANGES = (
    Range("15m", 900, "quarter of an hour"),
    Range("1h", 3600, "hour"),
    Range("6h", 21_600, "six hours"),
    Range("1d", 86_400, "day"),
    Range("7d", 7 * 86_400, "week"),
    Range("30d", 30 * 86_400, "month"),
    Range("1y", 365 * 86_400, "year"),
)
POINTS_MOST = 1_500
"""Of one line; a chart has fewer pixels."""
_DELIVERING = ("deliver", "deliver_no_ack", "get", "get_no_ack")


def range_links(request: HttpRequest) -> list[tuple[Range, str]]:
    """Each range with the query that leads to it on the page of the request, which may name its
    object, and filter its tables, by query."""
    query = request.GET.copy()
    links = []
    for span in RANGES:
        query["range"] = span.name
        links.append((span, query.urlencode()))
    return links


def chosen_range(request: HttpRequest) -> Range:
    """The range of `?range=`, by default the last quarter of an hour."""
    return next((span for span in RANGES if span.name == request.GET.get("range")), RANGES[0])


async def history(request: HttpRequest, what: str, key: list[str]) -> dict[str, Any]:
    """`{step_ms, times, series}` of the chosen range; empty when there is none yet. `note` says
    what is not known of it."""
    now_ms = int(time.time() * 1000)
    from_ms = now_ms - chosen_range(request).seconds * 1000
    try:
        found: dict[str, Any] = await ask(request, "history", what=what, key=key, from_ms=from_ms)
    except BrokerError as error:
        if error.status not in (400, 404):
            raise
        return {"step_ms": 1000, "times": [], "series": {}}
    series = found["series"]
    parts = [series.pop(name) for name in _DELIVERING if name in series]
    if parts:
        series["deliver_get"] = [_sum(column) for column in zip(*parts, strict=True)]
    wanted = {name: values for name, values in series.items() if name in _SHOWN}
    if found["step_ms"] == 1000:
        # Live points are rates over the last five seconds; the past is shown the same way.
        wanted |= {name: _smooth(wanted[name]) for name in wanted.keys() - _LEVELS}
    told = {
        "step_ms": found["step_ms"],
        "times": found["times"],
        "series": wanted,
        "span_s": chosen_range(request).seconds,
    }
    return {**thinned(told), "note": _note(found, from_ms)}


def thinned(found: dict[str, Any]) -> dict[str, Any]:
    """The same with at most `POINTS_MOST` points: of some that follow each other the rates are
    averaged, and the last level counts."""
    times = found["times"]
    every = -(-len(times) // POINTS_MOST)
    if every < 2:
        return found
    starts = range(0, len(times), every)
    series = {
        name: [
            _last(values[at : at + every]) if name in _LEVELS else _mean(values[at : at + every])
            for at in starts
        ]
        for name, values in found["series"].items()
    }
    ends = [times[min(at + every, len(times)) - 1] for at in starts]
    return {**found, "step_ms": found["step_ms"] * every, "times": ends, "series": series}


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 3) if known else None


def _last(values: list[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _note(found: dict[str, Any], from_ms: int) -> str:
    """What the chart cannot show, in words; empty if it shows all."""
    notes = []
    begins = found.get("begins", 0)
    if begins > from_ms:
        notes.append(
            f"History begins {datetime.fromtimestamp(begins / 1000, UTC):%d %b %Y %H:%M} UTC."
        )
    if found.get("left_out"):
        notes.append("Gaps: other objects were busier and the space for history is bounded.")
    return " ".join(notes)


def sparks(found: dict[str, Any]) -> dict[str, list[float | None]]:
    """The last points of each series, for the sparklines of the tiles."""
    return {name: values[-SPARK_POINTS:] for name, values in found["series"].items()}


def _sum(values: tuple[float | None, ...]) -> float | None:
    """What they add up to; a gap if one is missing."""
    return None if None in values else round(sum(value or 0.0 for value in values), 3)


def _smooth(values: list[float | None]) -> list[float | None]:
    """Each value as the average of itself and the known ones of the four steps before."""
    smoothed: list[float | None] = []
    for place, value in enumerate(values):
        near = [one for one in values[max(0, place - 4) : place + 1] if one is not None]
        smoothed.append(None if value is None else round(sum(near) / len(near), 3))
    return smoothed


_LEVELS = {"messages_ready", "messages_unacknowledged", "connections", "queues"}
_SHOWN = {
    "publish",
    "deliver_get",
    "ack",
    "redeliver",
    "messages_ready",
    "messages_unacknowledged",
    "connections",
    "queues",
    "publish_in",
    "publish_out",
    "recv_oct",
    "send_oct",
}
