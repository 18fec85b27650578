"""What pages and API show of the reports, and to whom. Reads files and the reports' socket: call
it in a thread.

Users with tag administrator or monitoring see everything and may run and cancel. Others who may use
the pages see results, but only the rows of virtual hosts they have permissions in.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from . import client, results
from .catalog import REPORTS, Report
from .runs import Run, RunNotFound, Runs

LATEST = "latest"


@dataclass(frozen=True)
class Standing:
    """How a report stands. `next_at` is UTC ms, None if the reports process does not answer."""

    report: Report
    runs: list[Run]
    schedule: str
    next_at: int | None

    @property
    def under_way(self) -> Run | None:
        """The run that waits or runs, if the reports process lives to end it."""
        if self.next_at is None:
            return None
        return next((run for run in self.runs if not run.is_over), None)

    @property
    def last_done(self) -> Run | None:
        return next((run for run in self.runs if run.state == "done"), None)

    @property
    def last_over(self) -> Run | None:
        return next((run for run in self.runs if run.is_over), None)


class Desk:
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
        runs = self.runs.all(name)
        return Standing(
            report=REPORTS[name],
            runs=runs,
            schedule=status.schedule if status else "",
            next_at=status.next_at.get(name) if status else None,
        )

    def _status(self) -> client.Reply | None:
        try:
            return client.status(self._data_dir)
        except client.ReportsUnavailable:
            return None

    def run(self, name: str, asked_by: str) -> str:
        """Have a report run; its run's id. Raises RunNotFound, ReportsUnavailable, …Refused."""
        if name not in REPORTS:
            raise RunNotFound(f"there is no report {name!r}")
        return client.run(self._data_dir, name, asked_by)

    def cancel(self, name: str, run_id: str) -> None:
        """End a run. Raises RunNotFound, ReportsUnavailable, ReportsRefused."""
        self.runs.read(name, run_id)
        client.cancel(self._data_dir, name, run_id)

    def find(self, name: str, run_id: str) -> Run:
        """A run by its id or `latest`, the newest with a result. Raises RunNotFound."""
        if run_id != LATEST:
            return self.runs.read(name, run_id)
        run = self.runs.last_done(name)
        if run is None:
            raise RunNotFound(f"report {name} has no result yet")
        return run

    def file(self, run: Run, form: str, vhosts: Collection[str] | None) -> bytes:
        """A result as a file. `vhosts` limits the rows; None shows all. Raises RunNotFound.

        Parquet is not cut down to some vhosts: for such users there is none.
        """
        if vhosts is None:
            return self.runs.result(run, form).read_bytes()
        if form not in ("csv", "json"):
            raise RunNotFound(f"the result as {form} holds all virtual hosts: ask for csv or json")
        table = self.table(run, vhosts)
        if form == "json":
            return msgspec.json.encode(table)
        return results.as_csv(REPORTS[run.report].columns, table["rows"])

    def table(self, run: Run, vhosts: Collection[str] | None) -> dict[str, Any]:
        """A result as in its JSON file, its rows limited to `vhosts`. Raises RunNotFound."""
        path = self.runs.result(run, "json")
        table = _read(path, path.stat().st_mtime_ns)
        if vhosts is None:
            return table
        at = [column["name"] for column in table["columns"]].index("vhost")
        rows = [row for row in table["rows"] if row[at] in vhosts]
        return {**table, "rows": rows, "row_count": len(rows)}


@functools.lru_cache(maxsize=2)
def _read(path: Path, _: int) -> dict[str, Any]:
    """A result file, decoded once for all who look at it; nobody may change what is returned."""
    table: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return table


def described(standing: Standing, *, everything: bool) -> dict[str, Any]:
    """A report as the API shows it, with its last run and the one under way."""
    last, running = standing.last_done, standing.under_way
    return {
        "name": standing.report.name,
        "title": standing.report.title,
        "summary": standing.report.summary,
        "schedule": standing.schedule,
        "next_at": standing.next_at,
        "available": standing.next_at is not None,
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
    shown = ("report", "run_id", "state", "asked_at", "started_at", "ended_at", "took_ms")
    return {name: record[name] for name in shown}
