"""The overview: is it fine, what changed, who moves most."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import charts, problems
from frontend.asking import ask


async def overview(request: HttpRequest) -> HttpResponseBase:
    """The node as the user may see it."""
    row: dict[str, Any] = await ask(request, "overview")
    found = await charts.history(request, "overview", [])
    if not request.user.is_monitoring:
        # The history has the connections of all users; the tile has one's own.
        found["series"].pop("connections", None)
    facts = {
        "section": "overview",
        "overview": row,
        "problems": problems.shown(row["problems"]),
        "uptime": (row["at"] - row["started_at"]) / 1000 if row["at"] else 0,
        "history": found,
        "sparks": charts.sparks(found),
        "ranges": charts.range_links(request),
        "range": charts.chosen_range(request),
    }
    return render(request, "overview.html", facts)
