"""Usage reports: the last result as chart and table, how it came about, and running it again."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Collection
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse

from frontend.asking import done, is_fragment
from management.appliance import config
from management.reports import desk as queries
from management.reports.catalog import REPORTS
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

    The chart adds up all rows that match.
    """
    report = REPORTS[run.report]
    result = desk.result(run)
    where = queries.where(report, request.GET, vhosts)
    everything = queries.where(report, {}, vhosts)
    row_count = result.count(where)
    page_count = max(1, -(-row_count // ROWS_A_PAGE))
    page = min(_page(request), page_count)
    first = (page - 1) * ROWS_A_PAGE
    shown = result.page(where, first, ROWS_A_PAGE)
    query = {name: request.GET[name] for name in ("vhost", "q") if request.GET.get(name)}
    return {
        "columns": report.columns,
        "rows": [list(zip(report.columns, row, strict=True)) for row in shown],
        "row_count": row_count,
        "total_count": result.count(everything),
        "first": first + 1,
        "last_shown": first + len(shown),
        "vhosts": result.distinct("vhost", everything),
        "query": {"vhost": "", "q": ""} | query,
        "previous_url": _address(request, query, page - 1) if page > 1 else "",
        "next_url": _address(request, query, page + 1) if page < page_count else "",
        "history": _per_hour(result.sums("hour", CHARTED, where)),
    }


def _page(request: HttpRequest) -> int:
    text = request.GET.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def _address(request: HttpRequest, query: dict[str, str], page: int) -> str:
    return request.path + "?" + urlencode({**query, "page": page})


def _per_hour(sums: dict[int, tuple[int, ...]]) -> dict[str, Any]:
    """Sums by the hour as charts take them; an hour without rows is zero, not a gap."""
    if not sums:
        return {"step_ms": HOUR_MS, "times": [], "series": {}}
    times = list(range(min(sums), max(sums) + 1, HOUR_MS))
    none = (0,) * len(CHARTED)
    series = {
        name: [sums.get(time, none)[index] for time in times] for index, name in enumerate(CHARTED)
    }
    return {"step_ms": HOUR_MS, "times": times, "series": series}
