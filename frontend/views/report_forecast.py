"""The forecast of a report as numbers that a template draws: lines with their bands of 95 %."""

from __future__ import annotations

from typing import Any

from frontend import figures
from management.reports.catalog import AHEAD_DAYS
from management.reports.pages import Result, Where
from management.reports.shapes import View

WIDTH, HEIGHT, TOP_PAD = 640, 200, 14
LINES = 3
"""Rows of the result that are drawn: the first ones, as the table is sorted."""
DAY_MS = 86_400_000
DAYS_MAX = 365
NEEDED = {"held_bytes", "growth", "growth_low", "growth_high"}


def forecast(result: Result, view: View, where: Where, computed_at: int) -> dict[str, Any] | None:
    """Lines from what is held at `computed_at` (UTC ms) on, with the bands between the least and
    the greatest growth, and the size of the disk where the view has one; None for other views.
    """
    if not set(view.names) >= NEEDED:
        return None
    rows = [dict(zip(view.names, row, strict=True)) for row in result.page(where, 0, LINES)]
    rows = [row for row in rows if all(row[name] is not None for name in NEEDED)]
    if not rows:
        return None
    days = _days(rows, computed_at)
    limit = max((row["held_bytes"] + row["free"] for row in rows if "free" in row), default=0)
    highest = max(_then(row, "high", days) for row in rows)
    top = max(highest, *(row["held_bytes"] for row in rows), limit, 1) * 1.05

    def y(value: float) -> str:
        return f"{TOP_PAD + HEIGHT * (1 - value / top):.1f}"

    lines = []
    for number, row in enumerate(rows, 1):
        least, most = _then(row, "low", days), _then(row, "high", days)
        expected = _then(row, "", days)
        now = y(row["held_bytes"])
        lines.append(
            {
                "series": f"series-{number}",
                "names": [row[name] for name, _ in view.keys if row[name]] or ["all queues"],
                "band": f"0,{now} {WIDTH},{y(most)} {WIDTH},{y(least)}",
                "from": now,
                "to": y(expected),
                "title": f"{figures.size(row['held_bytes'])} now, in {days} days "
                f"{figures.size(expected)}, between {figures.size(least)} and "
                f"{figures.size(most)}",
            }
        )
    return {
        "lines": lines,
        "limit": y(limit) if limit else "",
        "grid": [(y(part * top), figures.size(int(part * top))) for part in (0, 0.5, 1)],
        "labels": [
            (f"{WIDTH * part / 4:.1f}", f"in {days * part // 4} d" if part else "now")
            for part in range(5)
        ],
        "days": days,
        "width": WIDTH,
        "height": TOP_PAD + HEIGHT + 22,
    }


def _then(row: dict[str, Any], end: str, days: int) -> float:
    """What is held `days` days from now, at least 0: as the report says it, or by its
    growth a day. `end`: `low` and `high` of the band, empty for the line."""
    suffix = f"_{end}" if end else ""
    if (told := row.get(f"expected{suffix}")) is not None and days == AHEAD_DAYS:
        return float(told)
    return max(0.0, float(row["held_bytes"] + row[f"growth{suffix}"] * days))


def _days(rows: list[dict[str, Any]], computed_at: int) -> int:
    """How far ahead: a month, or until the disk may be full at last, a year at most."""
    last = [row.get("full_last") or row.get("full_at") or 0 for row in rows]
    needed = [-(-(at - computed_at) // DAY_MS) for at in last if at > computed_at]
    return min(DAYS_MAX, max([AHEAD_DAYS, *needed]))
