"""Usage reports: the last result as chart and table, how it came about, and running it again."""

from __future__ import annotations

import time
from asyncio import to_thread
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import render
from django.urls import reverse

from frontend.asking import done, is_fragment
from frontend.report_cells import Layout
from frontend.views.report_charts import charts
from frontend.views.report_forecast import forecast
from management.appliance import config
from management.reports import access as queries
from management.reports import parameters
from management.reports.access import ReportAccess, Standing
from management.reports.catalog import REPORTS
from management.reports.client import ReportsRefused, ReportsUnavailable
from management.reports.measures import Column
from management.reports.pages import Result, Where
from management.reports.plans import FIELDS
from management.reports.runs import Run, RunNotFound
from management.reports.shapes import View
from management.reports.tariff import ITEMS
from management.reports.visibility import require_administrator, require_monitoring, visible_vhosts

ROWS_A_PAGE = 100
CHARTED = ("messages_in", "messages_out", "bytes_in", "bytes_out")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PARAMETERS = ("from", "to", "grain", "by")
FILE_QUERY = ("vhost", "q", "measure", "top", "sort")
TOPS = ("5", "10", "20", "50")


@dataclass(frozen=True)
class Heading:
    """A column's heading: how rows are sorted by it (as `aria-sort` has it), and the address of
    the page with rows sorted by it, or in the other direction."""

    column: Column
    classes: str
    direction: str
    url: str


async def reports(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """GET: a report, the first one by default, with the parameters of the query. POST `action`:
    run (with the parameters of the query), cancel, retry, plan, remove-plan; of the cost
    statement tariff and remove-tariff.
    """
    name = name or next(iter(REPORTS))
    if name not in REPORTS:
        raise Http404
    access = ReportAccess(config().data_dir)
    facts: dict[str, Any] = {"status": 200}
    if request.method == "POST":
        try:
            return await _act(request, access, name)
        except (ReportsRefused, ReportsUnavailable, RunNotFound, ValueError) as error:
            facts |= {"error": str(error), "status": 400}
    vhosts = await visible_vhosts(request.user)
    standing = await to_thread(access.standing, name)
    given = _parameters(request)
    try:
        chosen, canonical = parameters.read(REPORTS[name], given)
    except ValueError as error:
        facts |= {"error": str(error), "status": 400}
        given = {}
        chosen, canonical = parameters.read(REPORTS[name], given)
    run = standing.newest(canonical)
    facts |= _state(request, standing, canonical, run) | {"given": given, "view": chosen.view}
    units = (f"messages by the {chosen.grain}", f"bytes of bodies by the {chosen.grain}")
    facts |= {"grain": chosen.grain, "chart_units": units}
    if run is not None:
        facts |= await to_thread(_result, request, access, run, vhosts)
    if request.user.is_administrator:
        facts["plans"] = await to_thread(_plans, access, name)
        facts["plan_form"] = _typed(request, "plan")
    if REPORTS[name].charges:
        facts |= await to_thread(_accounts, access, _typed(request, "tariff"))
        facts["may_price"] = request.user.is_administrator
    return render(request, "reports.html", facts, status=facts["status"])


def _parameters(request: HttpRequest) -> dict[str, str]:
    """What a run of the page's report is asked for. A virtual host only chooses among the rows."""
    return {name: request.GET[name] for name in PARAMETERS if request.GET.get(name)}


async def status(request: HttpRequest, name: str) -> HttpResponseBase:
    """The lines about the runs under way, asked for once a second; when one of those that the page
    shows (`shown`) is over, or Spark is installed, the page anew.
    """
    if name not in REPORTS:
        raise Http404
    await visible_vhosts(request.user)
    standing = await to_thread(ReportAccess(config().data_dir).standing, name)
    try:
        _, canonical = parameters.read(REPORTS[name], _parameters(request))
    except ValueError:
        canonical = {}
    now = {run.run_id for run in standing.runs_under_way}
    shown = set(filter(None, request.GET.get("shown", "").split(",")))
    is_news = bool(shown - now) or not (now or standing.is_installing)
    if is_news and is_fragment(request):
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    return render(request, "reports/status.html", _state(request, standing, canonical, None))


async def _act(request: HttpRequest, access: ReportAccess, name: str) -> HttpResponseBase:
    require_monitoring(request.user)
    choice = _parameters(request)
    address = reverse("report", args=[name]) + ("?" + urlencode(choice) if choice else "")
    action = request.POST.get("action", "")
    if action == "run":
        await to_thread(access.run, name, request.user.name, choice)
        return done(request, address, "The report is being computed.")
    if action in ("tariff", "remove-tariff") and REPORTS[name].charges:
        require_administrator(request.user)
        since = request.POST.get("since", "").strip()
        if action == "remove-tariff":
            await to_thread(access.remove_tariff, since, request.user.name)
            return done(request, address, f"The tariff from {since} is removed.")
        given = {key: request.POST.get(key, "") for key in ("currency", *ITEMS)}
        await to_thread(access.set_tariff, since, given, request.user.name)
        return done(
            request, address, f"The tariff from {since} is set. Run the report to apply it."
        )
    if action in ("plan", "remove-plan"):
        require_administrator(request.user)
        plan = request.POST.get("plan", "").strip()
        if action == "remove-plan":
            await to_thread(access.remove_plan, name, plan, request.user.name)
            return done(request, address, f"The plan {plan} is removed.")
        given = {key: request.POST[key] for key in FIELDS if request.POST.get(key)}
        given |= choice
        await to_thread(access.set_plan, name, plan, given, request.user.name)
        return done(request, address, f"The plan {plan} is set.")
    if action == "retry":
        await to_thread(access.retry, name, request.POST.get("run_id", ""), request.user.name)
        return done(request, address, "The report is being computed again.")
    if action == "cancel":
        await to_thread(access.cancel, name, request.POST.get("run_id", ""))
        return done(request, address, "The run is cancelled.")
    raise Http404


def _plans(access: ReportAccess, name: str) -> list[dict[str, Any]]:
    try:
        return access.plans(name)
    except ValueError:
        return []


def _typed(request: HttpRequest, action: str) -> QueryDict:
    """What was typed into the form of an action, if it was refused; else empty."""
    return request.POST if request.POST.get("action") == action else QueryDict()


def _accounts(access: ReportAccess, typed: QueryDict) -> dict[str, Any]:
    """The tariffs, the closed months, and the form for the next tariff: what was typed, or what it
    begins with."""
    try:
        tariffs, closed = access.tariffs(), access.closed()
    except ValueError as error:
        return {"error": str(error), "tariffs": [], "closed": []}
    newest = closed[-1].month if closed else ""
    next_month = f"{datetime.now(UTC):%Y-%m}"
    latest = tariffs[-1] if tariffs else {"currency": "EUR"}
    items = [
        (item, unit, typed.get(item, latest.get(item, ""))) for item, (unit, _) in ITEMS.items()
    ]
    return {
        "tariffs": [
            {"prices": [one[item] for item in ITEMS], "is_open": one["since"] > newest} | one
            for one in reversed(tariffs)
        ],
        "units": [unit for unit, _ in ITEMS.values()],
        "closed": list(reversed(closed)),
        "tariff_form": {
            "since": typed.get("since", next_month),
            "currency": typed.get("currency", latest["currency"]),
            "items": items,
        },
    }


def _state(
    request: HttpRequest, standing: Standing, canonical: dict[str, str], shown: Run | None
) -> dict[str, Any]:
    """What the page says of the report's runs; `shown` is the one whose result it shows."""
    over, under_way = standing.last_over, standing.runs_under_way
    now = time.time()
    return {
        "section": "reports",
        "report": standing.report,
        "reports": REPORTS.values(),
        "schedule": standing.schedule,
        "next_at": standing.next_at,
        "available": standing.next_at is not None,
        "is_installing": standing.is_installing,
        "under_way": [(run, now - (run.started_at or run.asked_at) / 1000) for run in under_way],
        "status_query": urlencode(
            {**canonical, "shown": ",".join(run.run_id for run in under_way)}
        ),
        "is_asked": any(run.parameters == canonical for run in under_way),
        "last": shown,
        "last_seconds": _seconds(shown),
        "failed": over if over is not None and over.state == "failed" else None,
        "recent": [(run, _seconds(run), urlencode(run.parameters)) for run in standing.runs[:10]],
        "run_query": urlencode(canonical),
        "may_run": request.user.is_monitoring,
        "spark": standing.spark if request.user.is_monitoring else None,
        "is_administrator": request.user.is_administrator,
        "sees_all": request.user.is_monitoring,
    }


def _seconds(run: Run | None) -> float | None:
    if run is None or run.started_at is None or run.ended_at is None:
        return None
    return (run.ended_at - run.started_at) / 1000


def _result(
    request: HttpRequest, access: ReportAccess, run: Run, vhosts: Collection[str] | None
) -> dict[str, Any]:
    """The part of the result that the URL asks for: `vhost`, `q` (part of a queue's name), `page`.

    The chart adds up all rows that match.
    """
    view, report = access.view(run), REPORTS[run.report]
    result = access.result(run)
    everything = queries.where(view, {}, vhosts)
    error = {}
    try:
        where = access.chosen(run, request.GET, vhosts)
        result.check_order(where)
    except ValueError as problem:
        error = {"error": str(problem), "status": 400}
        where = queries.where(view, request.GET, vhosts)
    row_count = result.count(where)
    page_count = max(1, -(-row_count // ROWS_A_PAGE))
    page = min(_page(request), page_count)
    first = (page - 1) * ROWS_A_PAGE
    shown = result.page(where, first, ROWS_A_PAGE)
    layout = Layout.of(view.columns, ("vhost",) if report.wants_disk else ())
    names = (*PARAMETERS, "vhost", "q", "measure", "top", "sort")
    query = {name: request.GET[name] for name in names if request.GET.get(name)}
    return {
        **error,
        "layout": layout,
        "headings": _headings(request, layout, view, where.order, query),
        "file_query": urlencode({name: query[name] for name in FILE_QUERY if name in query}),
        "tops": TOPS,
        "rows": [layout.row(row) for row in shown],
        "row_count": row_count,
        "total_count": result.count(everything),
        "first": first + 1,
        "last_shown": first + len(shown),
        "vhosts": result.distinct("vhost", everything),
        "query": {"vhost": "", "q": "", "top": ""} | query,
        "previous_url": _address(request, query, page - 1) if page > 1 else "",
        "next_url": _address(request, query, page + 1) if page < page_count else "",
        "forecast": forecast(result, view, where, run.ended_at or run.asked_at),
        "history": _history(result, view, where) if report.by_time else None,
        **charts(report, result, view, where, request.GET.get("measure", "")),
    }


def _headings(
    request: HttpRequest, layout: Layout, view: View, order: str, query: dict[str, str]
) -> list[Heading]:
    """The headings of the table; each leads to the rows sorted by it, numbers from the greatest
    down first."""
    shown = order or next(iter(view.order), "")
    found = []
    for column, classes in layout.headings:
        direction = ""
        if shown.removeprefix("-") == column.name:
            direction = "descending" if shown.startswith("-") else "ascending"
        first = column.name if column.kind == "text" else f"-{column.name}"
        turned = column.name if direction == "descending" else f"-{column.name}"
        url = request.path + "?" + urlencode({**query, "sort": turned if direction else first})
        found.append(Heading(column, classes, direction, url))
    return found


def _history(result: Result, view: View, where: Where) -> dict[str, Any] | None:
    """All rows that match added up by the view's time, if it has one that charts can show."""
    if not view.time or not set(CHARTED) <= set(view.names):
        return None
    return _by_time(result.sums(view.time, CHARTED, where))


def _page(request: HttpRequest) -> int:
    text = request.GET.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def _address(request: HttpRequest, query: dict[str, str], page: int) -> str:
    return request.path + "?" + urlencode({**query, "page": page})


def _by_time(sums: dict[int, tuple[int, ...]]) -> dict[str, Any]:
    """Sums as charts take them; an hour or day without rows is zero, not a gap."""
    known = sorted(sums)
    step = min((b - a for a, b in pairwise(known)), default=HOUR_MS)
    if not known:
        return {"step_ms": HOUR_MS, "times": [], "series": {}}
    # Months differ in length.
    step = HOUR_MS if step < DAY_MS else DAY_MS if step < 28 * DAY_MS else step
    times = known if step > DAY_MS else list(range(known[0], known[-1] + 1, step))
    none = (0,) * len(CHARTED)
    series = {
        name: [sums.get(at, none)[index] for at in times] for index, name in enumerate(CHARTED)
    }
    return {"step_ms": step, "times": times, "series": series}
