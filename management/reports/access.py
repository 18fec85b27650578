"""What pages and API show of the reports to which user. Reads files and the reports' socket: call
it in a thread.

Users with tag administrator or monitoring see everything and may run and cancel. Others who may use
the pages see results, but only the rows of virtual hosts they have permissions in.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from . import charted, client, parameters, plans, tariff
from .catalog import REPORTS
from .ledger import Closed, Ledger
from .measures import Column
from .pages import Result, Where
from .runs import LOG, RESULT_FORMATS, Run, RunNotFound, Runs
from .shapes import Report, View

LATEST = "latest"
PAGE_SIZE_MAX = 10_000
LOG_SHOWN = 256 * 1024

# Objects of which `top` shows the rows, at most.
TOP_MAX = 1000

# What a run's record tells users who may see some virtual hosts only.
SHOWN_TO_ALL = (
    "report", "run_id", "parameters", "gaps", "state", "asked_at", "started_at", "ended_at",
    "took_ms",
)  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """How a report stands. `next_at` is UTC ms, None if the reports process does not answer;
    `spark` is what is kept for the next run of any report; while `is_installing`, runs wait until
    Spark and Java are installed.
    """

    report: Report
    runs: list[Run]
    schedule: str
    next_at: int | None
    spark: client.SparkKept | None = None
    is_installing: bool = False

    @property
    def under_way(self) -> Run | None:
        """The run that runs or waits first, if the reports process lives to end it."""
        return next(iter(self.runs_under_way), None)

    @property
    def runs_under_way(self) -> list[Run]:
        """The runs that run or wait, in their order, if the reports process lives to end them."""
        if self.next_at is None:
            return []
        found = [run for run in self.runs if not run.is_over]
        return sorted(found, key=lambda run: (run.state == "waiting", run.asked_at))

    @property
    def last_done(self) -> Run | None:
        """The newest run with the default parameters that has a result."""
        return self.newest({})

    def newest(self, canonical: dict[str, str]) -> Run | None:
        """The newest run with these parameters that has a result."""
        return next(
            (run for run in self.runs if run.state == "done" and run.parameters == canonical), None
        )

    @property
    def last_over(self) -> Run | None:
        return next((run for run in self.runs if run.is_over), None)


class ReportAccess:
    """The reports of the appliance whose data lie in `data_dir`."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.runs = Runs(data_dir / "reports")

    def standing(self, name: str) -> Standing:
        """Raises RunNotFound if there is no such report."""
        return self._standing(name, self._status())

    def standings(self) -> list[Standing]:
        """All reports, in the catalog's order."""
        status = self._status()
        return [self._standing(name, status) for name in REPORTS]

    def _standing(self, name: str, status: client.Reply | None) -> Standing:
        newer = {run.run_id: run for run in status.unwritten} if status else {}
        runs = [newer.get(run.run_id, run) for run in self.runs.all(name)]
        return Standing(
            report=REPORTS[name],
            runs=runs,
            schedule=status.schedules.get(name, "") if status else "",
            next_at=status.next_at.get(name) if status else None,
            spark=status.spark if status else None,
            is_installing=status.is_installing if status else False,
        )

    def _status(self) -> client.Reply | None:
        try:
            return client.status(self._data_dir)
        except client.ReportsUnavailable:
            return None

    def run(self, name: str, asked_by: str, given: Mapping[str, str] | None = None) -> str:
        """Have a report run; its run's id. Raises RunNotFound, ReportsUnavailable, …Refused, and
        ValueError for a wrong parameter.
        """
        if name not in REPORTS:
            raise RunNotFound(f"there is no report {name!r}")
        _, canonical = parameters.read(REPORTS[name], given or {})
        return client.run(self._data_dir, name, asked_by, canonical)

    def retry(self, name: str, run_id: str, asked_by: str) -> str:
        """Run anew what failed or was cancelled; the new run's id. Raises as `run` does."""
        run = self.find(name, run_id)
        if run.state not in ("failed", "cancelled"):
            raise ValueError(
                f"run {run_id} is {run.state}: what failed or was cancelled can be retried"
            )
        return self.run(name, asked_by, run.parameters)

    def newest(self, name: str, given: Mapping[str, str]) -> Run | None:
        """The newest run with these parameters that has a result. Raises ValueError."""
        _, canonical = parameters.read(REPORTS[name], given)
        return self.runs.last_done(name, canonical)

    def cancel(self, name: str, run_id: str) -> None:
        """End a run. Raises RunNotFound, ReportsUnavailable, ReportsRefused."""
        self.runs.read(name, run_id)
        client.cancel(self._data_dir, name, run_id)

    def tariffs(self) -> list[dict[str, Any]]:
        """The tariffs of the cost statement, oldest first. Raises ValueError."""
        return [msgspec.to_builtins(one) for one in tariff.read(self._data_dir / "reports")]

    def closed(self) -> list[Closed]:
        """The closed months of the cost statement, oldest first. Raises ValueError."""
        return Ledger(self._data_dir / "reports").months()

    def set_tariff(self, since: str, given: Mapping[str, Any], asked_by: str) -> None:
        """Put a tariff in force. Raises ReportsUnavailable, ReportsRefused, ValueError."""
        values = {name: str(value) for name, value in given.items() if value is not None}
        checked = tariff.checked({**values, "since": since})
        client.set_tariff(self._data_dir, msgspec.to_builtins(checked), asked_by)

    def remove_tariff(self, since: str, asked_by: str) -> None:
        """Raises RunNotFound, ReportsUnavailable, ReportsRefused, ValueError."""
        since = f"{tariff.month_of(since):%Y-%m}"
        if since not in [one["since"] for one in self.tariffs()]:
            raise RunNotFound(f"there is no tariff from {since}")
        client.remove_tariff(self._data_dir, since, asked_by)

    def plans(self, name: str) -> list[dict[str, Any]]:
        """The plans of a report, with `next_at` (UTC ms; None: never, or unknown). Raises
        RunNotFound, ValueError.
        """
        if name not in REPORTS:
            raise RunNotFound(f"there is no report {name!r}")
        status = self._status()
        due = status.plans if status else {}
        return [
            msgspec.to_builtins(one) | {"next_at": due.get(f"{name}/{one.name}")}
            for one in plans.read(self._data_dir / "reports")
            if one.report == name
        ]

    def set_plan(self, name: str, plan: str, given: Mapping[str, str], asked_by: str) -> None:
        """Raises RunNotFound, ReportsUnavailable, ReportsRefused, ValueError."""
        if name not in REPORTS:
            raise RunNotFound(f"there is no report {name!r}")
        plans.checked(name, plan, given)
        client.set_plan(self._data_dir, name, plan, dict(given), asked_by)

    def remove_plan(self, name: str, plan: str, asked_by: str) -> None:
        """Raises RunNotFound, ReportsUnavailable, ReportsRefused, ValueError."""
        if plan not in [one["name"] for one in self.plans(name)]:
            raise RunNotFound(f"report {name} has no plan {plan!r}")
        client.remove_plan(self._data_dir, name, plan, asked_by)

    def csv(self, run: Run, most: int) -> bytes | None:
        """The whole result as CSV, None if it has more bytes than `most`. Raises RunNotFound."""
        parts, size = [], 0
        for part in self.file(run, "csv", Where()):
            parts.append(part)
            size += len(part)
            if size > most:
                return None
        return b"".join(parts)

    def find(self, name: str, run_id: str) -> Run:
        """A run by its id or `latest`, the newest with a result. Raises RunNotFound."""
        if run_id == LATEST:
            newest = self.runs.last_done(name)
            if newest is None:
                raise RunNotFound(f"report {name} has no result yet")
            return newest
        run = self.runs.read(name, run_id)
        status = None if run.is_over else self._status()
        newer = [one for one in status.unwritten if one.run_id == run_id] if status else []
        return newer[0] if newer else run

    def log(self, run: Run) -> str:
        """The end of what Spark printed in a run. Raises RunNotFound."""
        path = self.runs.path(run.report, run.run_id) / LOG
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - LOG_SHOWN))
                return file.read().decode(errors="replace")
        except OSError:
            raise RunNotFound(f"run {run.run_id} of {run.report} has no log") from None

    def result(self, run: Run) -> Result:
        """The result of a run, to read pages of. Raises RunNotFound."""
        return Result(self.runs.result(run), self.view(run).columns)

    def chosen(self, run: Run, query: Mapping[str, str], vhosts: Collection[str] | None) -> Where:
        """The rows that a URL's query asks for, in its order: `where`, `top` (rows of the objects
        with the greatest sums of `measure`), `sort`, `sort_reverse`. Raises RunNotFound, and
        ValueError with what is wrong.
        """
        view = self.view(run)
        chosen = replace(where(view, query, vhosts), order=order(view, query))
        wanted = top(view, query)
        if wanted is None:
            return chosen
        by, count = wanted
        return charted.greatest(self.result(run), view, by, chosen, count)

    def view(self, run: Run) -> View:
        """The view that a run was asked for. Raises RunNotFound if there is none such any more."""
        try:
            return parameters.read(REPORTS[run.report], run.parameters)[0].view
        except ValueError as error:
            raise RunNotFound(str(error)) from None

    def page(self, run: Run, where: Where, page: int, page_size: int) -> dict[str, Any]:
        """One page of the rows that match, as the API shows it. Raises RunNotFound, ValueError."""
        if page < 1 or not 1 <= page_size <= PAGE_SIZE_MAX:
            raise ValueError(f"page is 1 or more, page_size 1 to {PAGE_SIZE_MAX}")
        return self.result(run).as_page(where, _head(run, where), page, page_size)

    def file(self, run: Run, form: str, where: Where) -> Iterator[bytes]:
        """The rows that match as a file, piece by piece. Raises RunNotFound, and ValueError for
        more rows than are sorted: before the first piece, because an answer cannot be refused once
        it has begun."""
        result = self.result(run)
        result.check_order(where)
        if form == "json":
            return result.as_json(where, _head(run, where))
        if form == "csv":
            return result.as_csv(where)
        if form == "parquet":
            return result.as_parquet(where)
        raise RunNotFound(f"there are results as {', '.join(RESULT_FORMATS)}, not as {form!r}")


def _head(run: Run, where: Where) -> dict[str, Any]:
    """What a result's JSON says of its run to a user who may see these rows."""
    parameters = dict(run.parameters)
    if where.vhosts is not None and parameters.get("vhost") not in where.vhosts:
        parameters.pop("vhost", None)
    return {
        "report": run.report,
        "run_id": run.run_id,
        "parameters": parameters,
        "gaps": msgspec.to_builtins(run.gaps),
    }


def top(view: View, query: Mapping[str, str]) -> tuple[Column, int] | None:
    """The column and the number of objects with its greatest sums that a query asks for; None for
    all. Raises ValueError with what is wrong."""
    text = query.get("top", "")
    if not text:
        return None
    by = charted.measure(view, query.get("measure", ""))
    if by is None:
        raise ValueError("this view has no column to be the top of")
    wanted = query.get("measure") or by.name
    if wanted != by.name:
        known = ", ".join(column.name for column in charted.measures(view))
        raise ValueError(f"measure is {wanted[:40]!r}, not one of {known}")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= TOP_MAX):
        raise ValueError(f"top is {text[:40]!r}, not a number from 1 to {TOP_MAX}")
    return by, int(text)


def where(view: View, query: Mapping[str, str], vhosts: Collection[str] | None) -> Where:
    """The rows that a URL's query asks for, within the virtual hosts that a user may see."""
    vhost, text = query.get("vhost", ""), query.get("q", "")
    return Where(
        None if vhosts is None else frozenset(vhosts),
        (("vhost", vhost),) if vhost else (),
        ((view.search, text),) if text else (),
    )


def order(view: View, query: Mapping[str, str]) -> str:
    """The column that a query asks to sort by, as `Where` takes it: `sort=-name`, or `sort=name`
    with `sort_reverse=true`. Raises ValueError.
    """
    name = query.get("sort", "")
    if not name:
        return ""
    backwards = name.startswith("-") != (query.get("sort_reverse", "").lower() == "true")
    name = name.removeprefix("-")
    if name not in view.names:
        raise ValueError(f"sort is {name[:40]!r}, not one of {', '.join(view.names)}")
    return f"-{name}" if backwards else name


def described(standing: Standing, *, everything: bool) -> dict[str, Any]:
    """A report as the API shows it, with its last run and the one under way."""
    last, running, spark = standing.last_done, standing.under_way, standing.spark
    return {
        "name": standing.report.name,
        "title": standing.report.title,
        "summary": standing.report.summary,
        "grains": standing.report.grains,
        "by": [view.name for view in standing.report.views],
        "days": standing.report.days,
        "schedule": standing.schedule,
        "next_at": standing.next_at or None,
        "available": standing.next_at is not None,
        "spark": msgspec.to_builtins(spark) if everything and spark is not None else None,
        "last": None if last is None else described_run(last, everything=everything),
        "running": None if running is None else described_run(running, everything=everything),
    }


def described_run(run: Run, *, everything: bool) -> dict[str, Any]:
    """A run as the API shows it, its record or the part that tells nothing of other vhosts."""
    record: dict[str, Any] = msgspec.to_builtins(run)
    took = (run.ended_at or int(time.time() * 1000)) - run.started_at if run.started_at else None
    record["took_ms"] = took
    if everything:
        return record
    record["parameters"].pop("vhost", None)  # perhaps one that the user may not know of
    return {name: record[name] for name in SHOWN_TO_ALL}
