"""Usage reports: the last result as chart and table, how it came about, and running it again."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse

from frontend.asking import done, is_fragment
from management.appliance import config
from management.reports.catalog import REPORTS, Column
from management.reports.client import ReportsRefused, ReportsUnavailable
from management.reports.desk import Desk, Standing
from management.reports.runs import Run, RunNotFound
from management.reports.visibility import require_monitoring, visible_vhosts

ROWS_A_PAGE = 100
CHARTED = ("messages_in", "messages_out", "bytes_in", "bytes_out")
HOUR_MS = 3_600_000


async def reports(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """GET: a report, the first one by default. POST `action`: run, cancel."""
    name = name or next(iter(REPORTS))
    if name not in REPORTS:
        raise Http404
    desk = Desk(config().data_dir)
    facts: dict[str, Any] = {"status": 200}
    if request.method == "POST":
        try:
            return await _act(request, desk, name)
        except (ReportsRefused, ReportsUnavailable, RunNotFound) as error:
            facts |= {"error": str(error), "status": 400}
    vhosts = await visible_vhosts(request.user)
    standing = await to_thread(desk.standing, name)
    facts |= _state(request, standing)
    if standing.last_done is not None:
        facts |= await to_thread(_result, request, desk, standing.last_done, vhosts)
    return render(request, "reports.html", facts, status=facts["status"])


async def status(request: HttpRequest, name: str) -> HttpResponseBase:
    """The line about the run under way, asked for once a second; when it is over, the page anew."""
    if name not in REPORTS:
        raise Http404
    await visible_vhosts(request.user)
    standing = await to_thread(Desk(config().data_dir).standing, name)
    if standing.under_way is None and is_fragment(request):
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    return render(request, "reports/status.html", _state(request, standing))


async def _act(request: HttpRequest, desk: Desk, name: str) -> HttpResponseBase:
    require_monitoring(request.user)
    address = reverse("report", args=[name])
    action = request.POST.get("action", "")
    if action == "run":
        await to_thread(desk.run, name, request.user.name)
        return done(request, address, "The report is being computed.")
    if action == "cancel":
        await to_thread(desk.cancel, name, request.POST.get("run_id", ""))
        return done(request, address, "The run is cancelled.")
    raise Http404


def _state(request: HttpRequest, standing: Standing) -> dict[str, Any]:
    """What the page says of the report's runs."""
    over = standing.last_over
    return {
        "section": "reports",
        "report": standing.report,
        "reports": REPORTS.values(),
        "schedule": standing.schedule,
        "next_at": standing.next_at,
        "available": standing.next_at is not None,
        "run": standing.under_way,
        "last": standing.last_done,
        "last_seconds": _seconds(standing.last_done),
        "failed": over if over is not None and over.state == "failed" else None,
        "recent": [(run, _seconds(run)) for run in standing.runs[:10]],
        "may_run": request.user.is_monitoring,
    }


def _seconds(run: Run | None) -> float | None:
    if run is None or run.started_at is None or run.ended_at is None:
        return None
    return (run.ended_at - run.started_at) / 1000


def _result(
    request: HttpRequest, desk: Desk, run: Run, vhosts: Collection[str] | None
) -> dict[str, Any]:
    """The part of the result that the URL asks for: `vhost`, `q` (part of a queue's name), `page`.

    Newest hours first; the chart adds up all rows that match.
    """
    table = desk.table(run, vhosts)
    columns = REPORTS[run.report].columns
    names = [column.name for column in columns]
    vhost_at, queue_at = names.index("vhost"), names.index("queue")
    vhost, text = request.GET.get("vhost", ""), request.GET.get("q", "")
    rows = [
        row
        for row in reversed(table["rows"])
        if (not vhost or row[vhost_at] == vhost)
        and (not text or text.casefold() in row[queue_at].casefold())
    ]
    page_count = max(1, -(-len(rows) // ROWS_A_PAGE))
    page = min(_page(request), page_count)
    first = (page - 1) * ROWS_A_PAGE
    shown = rows[first : first + ROWS_A_PAGE]
    query = {name: value for name, value in (("vhost", vhost), ("q", text)) if value}
    return {
        "columns": columns,
        "rows": [_cells(row, columns) for row in shown],
        "row_count": len(rows),
        "total_count": table["row_count"],
        "truncated": table["truncated"],
        "first": first + 1,
        "last_shown": first + len(shown),
        "vhosts": sorted({row[vhost_at] for row in table["rows"]}),
        "query": {"vhost": vhost, "q": text},
        "previous_url": _address(request, query, page - 1) if page > 1 else "",
        "next_url": _address(request, query, page + 1) if page < page_count else "",
        "history": _per_hour(rows, names),
    }


def _page(request: HttpRequest) -> int:
    text = request.GET.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def _address(request: HttpRequest, query: dict[str, str], page: int) -> str:
    return request.path + "?" + urlencode({**query, "page": page})


def _cells(row: list[Any], columns: tuple[Column, ...]) -> list[tuple[Column, Any]]:
    """A row's values beside their columns; times as UTC milliseconds."""
    return [
        (column, _milliseconds(value) if column.kind == "time" else value)
        for column, value in zip(columns, row, strict=True)
    ]


def _milliseconds(text: str) -> int:
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()) * 1000


def _per_hour(rows: list[list[Any]], names: list[str]) -> dict[str, Any]:
    """The rows added up per hour, as charts take them; an hour without rows is zero, not a gap."""
    at = [names.index(name) for name in CHARTED]
    sums: dict[int, list[int]] = {}
    for row in rows:
        total = sums.setdefault(_milliseconds(row[0]), [0] * len(at))
        for index, position in enumerate(at):
            total[index] += row[position]
    if not sums:
        return {"step_ms": HOUR_MS, "times": [], "series": {}}
    times = list(range(min(sums), max(sums) + 1, HOUR_MS))
    none = [0] * len(at)
    series = {
        name: [sums.get(time, none)[index] for time in times] for index, name in enumerate(CHARTED)
    }
    return {"step_ms": HOUR_MS, "times": times, "series": series}
