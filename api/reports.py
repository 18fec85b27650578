"""Usage reports: what there is, their runs and results, run now, cancel.

Reading takes any management tag; without tag monitoring or administrator, results hold only the
rows of virtual hosts that the user has permissions in. Running and cancelling takes one of these
two tags.
"""

from asyncio import to_thread
from collections.abc import AsyncIterator, Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from msgspec import to_builtins
from ninja import Field, Router, Schema

from management.appliance import config
from management.broker_client import BrokerError
from management.reports import access
from management.reports.access import ReportAccess
from management.reports.client import ReportsRefused, ReportsUnavailable
from management.reports.runs import RESULT_FORMATS, RunNotFound
from management.reports.visibility import require_administrator, require_monitoring, visible_vhosts

router = Router(tags=["Reports"])


class Prices(Schema):
    """A tariff without its month. Prices are decimals, best as texts; what is left out is 0."""

    currency: str
    messages: str | float | None = None
    bytes: str | float | None = None
    storage: str | float | None = None
    connections: str | float | None = None


async def _asked(method: str, *arguments: Any) -> Any:
    """Call a method of the reports' access in a thread; its errors as the API's."""
    try:
        return await to_thread(getattr(ReportAccess(config().data_dir), method), *arguments)
    except RunNotFound as error:
        raise BrokerError(404, "Object Not Found", str(error)) from None
    except (ReportsRefused, ValueError) as error:
        raise BrokerError(400, "bad_request", str(error)) from None
    except ReportsUnavailable as error:
        raise BrokerError(503, "service_unavailable", str(error)) from None


def _sees_everything(request: HttpRequest) -> bool:
    return request.user.is_monitoring


@router.get("/reports")
async def list_reports(request: HttpRequest) -> Any:
    """All reports: when they ran last, when they run next."""
    await visible_vhosts(request.user)
    everything = _sees_everything(request)
    return [access.described(one, everything=everything) for one in await _asked("standings")]


@router.get("/reports/{seg:name}")
async def get_report(request: HttpRequest, name: str) -> Any:
    """One report, and its runs, newest first."""
    await visible_vhosts(request.user)
    everything = _sees_everything(request)
    standing = await _asked("standing", name)
    runs = [access.described_run(run, everything=everything) for run in standing.runs]
    return access.described(standing, everything=everything) | {"runs": runs}


@router.get("/reports/cost/tariff")
async def get_tariffs(request: HttpRequest) -> Any:
    """The tariffs of the cost statement, oldest first: prices as decimal texts, of a million
    messages, a GB of bodies, a GB held for an hour, an hour of a connection, from the month `since`
    on; and the closed months, which do not change, with when (UTC ms) and by which tariff."""
    await visible_vhosts(request.user)
    closed = [to_builtins(month) for month in await _asked("closed")]
    return {"tariffs": await _asked("tariffs"), "closed": closed}


@router.put("/reports/cost/tariff/{seg:since}", response={204: None})
async def put_tariff(request: HttpRequest, since: str, body: Prices) -> HttpResponse:
    """Put a tariff in force from a month (`2026-11`) on: `currency` (three letters), and prices
    `messages`, `bytes`, `storage`, `connections`; what is left out costs nothing. Only an
    administrator may, and only for months after the newest closed one."""
    require_administrator(request.user)
    await _asked("set_tariff", since, body.dict(), request.user.name)
    return HttpResponse(status=204)


@router.delete("/reports/cost/tariff/{seg:since}", response={204: None})
async def delete_tariff(request: HttpRequest, since: str) -> HttpResponse:
    """Take the tariff away that begins in a month, unless that month is closed."""
    require_administrator(request.user)
    await _asked("remove_tariff", since, request.user.name)
    return HttpResponse(status=204)


class PlanBody(Schema):
    """A plan without its name: when (`schedule`, cron's five fields in UTC; empty: never), whom to
    tell (`webhook`, an address; `mail`, addresses with commas between them), and what to ask:
    `from`, `to`, `grain`, `by`, `vhost`."""

    schedule: str = ""
    webhook: str = ""
    mail: str = ""
    first: str = Field("", alias="from")
    to: str = ""
    grain: str = ""
    by: str = ""
    vhost: str = ""


@router.get("/reports/{seg:name}/plans")
async def get_plans(request: HttpRequest, name: str) -> Any:
    """The plans of a report: schedules of their own, and who gets a notice of the result. Only an
    administrator sees them: addresses may hold secrets."""
    require_administrator(request.user)
    return await _asked("plans", name)


@router.put("/reports/{seg:name}/plans/{seg:plan}", response={204: None})
async def put_plan(request: HttpRequest, name: str, plan: str, body: PlanBody) -> HttpResponse:
    """Set a plan. One without parameters takes the place of the schedule in the settings."""
    require_administrator(request.user)
    given = {key: text for key, text in body.dict(by_alias=True).items() if text}
    await _asked("set_plan", name, plan, given, request.user.name)
    return HttpResponse(status=204)


@router.delete("/reports/{seg:name}/plans/{seg:plan}", response={204: None})
async def delete_plan(request: HttpRequest, name: str, plan: str) -> HttpResponse:
    """Take a plan away."""
    require_administrator(request.user)
    await _asked("remove_plan", name, plan, request.user.name)
    return HttpResponse(status=204)


@router.post("/reports/{seg:name}/run", response={202: Any})
async def run_report(request: HttpRequest, name: str) -> Any:
    """Compute the report now; if it is being computed already, that run's id is answered. The
    query may hold `from`, `to` (times in UTC), `grain`, `by` and `vhost`."""
    require_monitoring(request.user)
    user = request.user.name
    return 202, {"report": name, "run_id": await _asked("run", name, user, request.GET.dict())}


@router.get("/reports/{seg:name}/runs/{seg:run}")
async def get_run(
    request: HttpRequest, name: str, run: str, page: int = 0, page_size: int = 100
) -> Any:
    """The record of a run; with `.json`, `.csv` or `.parquet` behind its id, its result. The id
    `latest` is the newest run with the default parameters that has one. With `.log`, the end of
    what Spark printed. `vhost`, `q` (part of a queue's name) and `top` (a number: the objects
    with the greatest sums of `measure`) choose rows, `sort` and `sort_reverse` (as in lists)
    order them; with `page`, JSON holds one page of `page_size` rows."""
    vhosts = await visible_vhosts(request.user)
    run_id, _, form = run.partition(".")
    record = await _asked("find", name, run_id)
    if not form:
        return access.described_run(record, everything=_sees_everything(request))
    if form == "log":
        require_monitoring(request.user)
        text = await _asked("log", record)
        return HttpResponse(text, content_type="text/plain; charset=utf-8")
    where = await _asked("chosen", record, request.GET, vhosts)
    if page and form == "json":
        return await _asked("page", record, where, page, page_size)
    parts = await _asked("file", record, form, where)
    response = StreamingHttpResponse(_in_threads(parts), content_type=RESULT_FORMATS[form])
    if form != "json":
        file_name = f"{name}-{record.run_id}.{form}"
        response["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return response


@router.post("/reports/{seg:name}/runs/{seg:run}/retry", response={202: Any})
async def retry_run(request: HttpRequest, name: str, run: str) -> Any:
    """Compute again, with the same parameters, what failed or was cancelled."""
    require_monitoring(request.user)
    return 202, {"report": name, "run_id": await _asked("retry", name, run, request.user.name)}


async def _in_threads(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces of a file, each made in a thread when it is asked for."""
    while part := await to_thread(next, parts, b""):
        yield part


@router.delete("/reports/{seg:name}/runs/{seg:run}", response={204: None})
async def cancel_run(request: HttpRequest, name: str, run: str) -> HttpResponse:
    """End a run that waits or runs; its record then says `cancelled`."""
    require_monitoring(request.user)
    await _asked("cancel", name, run)
    return HttpResponse(status=204)
