"""What is kept of each run: a directory with its record, its log and its results.

`<data>/reports/<report>/<run id>/` holds `run.json` (the record, replaced whole at every change, so
that a reader always sees a complete one), `log` (what Spark printed) and, once the run is done,
`result/` with Parquet files. Until a run is over it has the same directory below
`<data>/run/reports`, from where it is brought by `placement`. Only the reports process writes
records; the web process reads them.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from .catalog import REPORTS
from .gaps import Gap
from .placement import HERE, Bring, Link, Placement, Remove, Step, Write

# Runs kept of each report; the oldest finished ones go first.
RUNS_KEPT = 50

RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
RECORD = "run.json"
LOG = "log"
RESULT = "result"
RESULT_FORMATS = {"json": "application/json", "csv": "text/csv", "parquet": "application/x-parquet"}

# Steps before Spark has anything to say.
STARTING = "starting Spark"
READING = "reading the feed"

State = Literal["waiting", "running", "done", "failed", "cancelled"]


class Progress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where a run is: Spark's stages and tasks; `rows_read` is None where Spark does not say."""

    step: str = "waiting"
    stage: int = 0
    stages: int = 0
    tasks_done: int = 0
    tasks: int = 0
    rows_read: int | None = None

    @property
    def stages_done(self) -> float:
        """Stages behind it, and the part of the present one that its tasks make up."""
        part = self.tasks_done / self.tasks if self.tasks else 0.0
        return max(0, self.stage - 1) + part


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery to a plan's `webhook` or `mail`: when (UTC ms), in how many attempts; `error` is
    empty if it was.
    """

    kind: str
    at: int
    attempts: int
    error: str = ""


class Run(msgspec.Struct, kw_only=True):
    """The record of one run. Times are UTC milliseconds; `asked_by` is None for the schedule and
    the command line; `parameters` as `parameters.read` spells them.

    `rows_read` and `rows_unreadable` are new lines of the usage feed, `rows_written` rows of the
    result, `hours_compacted` closed feed files that were taken into the tables on the way,
    `gaps` times within its range for which counts are missing, `plans` those that asked for it,
    `store_error` why tables and result are not in the object store.
    """

    report: str
    run_id: str
    state: State
    parameters: dict[str, str] = {}
    asked_by: str | None
    asked_at: int
    started_at: int | None = None
    ended_at: int | None = None
    progress: Progress = msgspec.field(default_factory=Progress)
    rows_read: int | None = None
    rows_unreadable: int | None = None
    rows_written: int | None = None
    hours_compacted: int | None = None
    gaps: list[Gap] = []
    spark: str | None = None
    error: str | None = None
    store_error: str | None = None
    plans: list[str] = []
    deliveries: list[Delivery] = []

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")


class RunNotFound(Exception):
    """No such report or run; the text names it."""


class Runs:
    """The runs under `<data>/reports`, and those under way; `placement` is how files come there."""

    def __init__(self, directory: Path, placement: Placement = HERE) -> None:
        self.directory = directory
        self._under_way = directory.parent / "run" / directory.name
        self._placement = placement

    def new(
        self,
        report: str,
        asked_by: str | None,
        now_ms: int,
        parameters: dict[str, str] | None = None,
    ) -> Run:
        """A new waiting run of a report of the catalog, recorded. Raises RunNotFound, OSError."""
        if report not in REPORTS:
            raise RunNotFound(f"there is no report {report!r}")
        time = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        run_id = f"{time}-{secrets.token_hex(3)}"
        run = Run(
            report=report,
            run_id=run_id,
            parameters=parameters or {},
            state="waiting",
            asked_by=asked_by,
            asked_at=now_ms,
        )
        local = self._local(report, run_id)
        # Under another name until its record is there: `forget_old`, in another thread, removes
        # runs without one.
        begun = local.with_name(f".{run_id}")
        try:
            begun.mkdir(parents=True)
            replace(begun / RECORD, _record(run))
            begun.rename(local)
        except OSError:
            shutil.rmtree(begun, ignore_errors=True)
            raise
        return run

    def path(self, report: str, run_id: str) -> Path:
        """The run's directory, whether it exists or not. Raises RunNotFound for an odd name."""
        if report not in REPORTS:
            raise RunNotFound(f"there is no report {report!r}")
        if RUN_ID.fullmatch(run_id) is None:
            raise RunNotFound(f"{run_id!r} is not the id of a run")
        kept = self.directory / report / run_id
        local = self._local(report, run_id)
        # The record is brought last: with it, all is there.
        return local if local.exists() and not (kept / RECORD).exists() else kept

    def _local(self, report: str, run_id: str) -> Path:
        return self._under_way / report / run_id

    def read(self, report: str, run_id: str) -> Run:
        """The record of one run. Raises RunNotFound."""
        try:
            data = (self.path(report, run_id) / RECORD).read_bytes()
            return msgspec.json.decode(data, type=Run)
        except (OSError, msgspec.MsgspecError):
            raise RunNotFound(f"report {report} has no run {run_id}") from None

    def write(self, run: Run, *, sync: bool = True) -> None:
        """Replace a run's record; mere progress need not survive a power cut. That of a run which
        is in its place goes through `placement`. Raises OSError."""
        data = _record(run)
        path = self.path(run.report, run.run_id) / RECORD
        if path.is_relative_to(self._under_way):
            replace(path, data, sync=sync)
        else:
            self._placement.carry([Write(str(path), data)])

    def bring(self, report: str, run_id: str) -> None:
        """Bring the files of a run that is over into their place. Raises OSError; then they can be
        brought again. What is there, or whose record does not say that it is over, stays."""
        local, kept = self._local(report, run_id), self.directory / report / run_id
        if self.path(report, run_id) != local or not self.read(report, run_id).is_over:
            return
        known = self._kept_results(report)
        steps: list[Step] = []
        for path in sorted((local / RESULT).glob("*.parquet")):
            target = str(kept / RESULT / path.name)
            earlier = known.get(path.stat().st_ino)
            steps.append(Link(earlier, target) if earlier else Bring(str(path), target))
        if (local / LOG).exists():
            steps.append(Bring(str(local / LOG), str(kept / LOG)))
        steps.append(Write(str(kept / RECORD), (local / RECORD).read_bytes()))
        self._placement.carry(steps)

    def _kept_results(self, report: str) -> dict[int, str]:
        """Files of kept results by their inode: a piece of an earlier result is a second name of
        its file."""
        files = (self.directory / report).glob(f"*/{RESULT}/*.parquet")
        return {path.stat().st_ino: str(path) for path in files}

    def left(self) -> list[Run]:
        """The runs whose files still lie where they were computed."""
        return [
            run
            for report in REPORTS
            for run in self.all(report)
            if self._local(report, run.run_id).exists()
        ]

    def clean(self, run: Run) -> bool:
        """Remove what is left of a run that was brought, where it was computed. False: it was not
        brought."""
        if not (self.directory / run.report / run.run_id / RECORD).exists():
            return False
        shutil.rmtree(self._local(run.report, run.run_id), ignore_errors=True)
        return True

    def all(self, report: str) -> list[Run]:
        """The runs of a report, newest first. Raises RunNotFound if there is no such report."""
        if report not in REPORTS:
            raise RunNotFound(f"there is no report {report!r}")
        found = []
        for run_id in sorted(self.ids(report), reverse=True):
            try:
                found.append(self.read(report, run_id))
            except RunNotFound:
                continue  # just begun, or just forgotten
        return found

    def last_done(
        self,
        report: str,
        parameters: dict[str, str] | None = None,
        *,
        until_ms: int | None = None,
    ) -> Run | None:
        """The newest run with these parameters (none by default) that has a result; with `until_ms`
        of those that had begun by then. Raises RunNotFound if there is no such report.
        """
        wanted = parameters or {}
        return next(
            (
                run
                for run in self.all(report)
                if run.state == "done"
                and run.parameters == wanted
                and (until_ms is None or (run.started_at or 0) <= until_ms)
            ),
            None,
        )

    def result(self, run: Run) -> tuple[Path, ...]:
        """The Parquet files of a finished run's result, in their order. Raises RunNotFound."""
        directory = self.path(run.report, run.run_id)
        # Earlier versions wrote one file.
        found = sorted((directory / RESULT).glob("*.parquet")) or [directory / "result.parquet"]
        if not all(path.is_file() for path in found):
            raise RunNotFound(f"run {run.run_id} of {run.report} has no result")
        return tuple(found)

    def end_abandoned(self, now_ms: int) -> None:
        """Say of runs that an earlier reports process left unfinished that they failed."""
        for report in REPORTS:
            for begun in (self._under_way / report).glob(".*"):
                shutil.rmtree(begun, ignore_errors=True)
            for run in self.all(report):
                if not run.is_over:
                    run.state = "failed"
                    run.ended_at = now_ms
                    run.error = "the reports process ended during this run; run it again"
                    self.write(run)

    def forget_old(self, report: str) -> None:
        """Delete all but the newest runs; the newest with a result always stays, and so do those
        that are not over. Raises OSError."""
        kept = self.last_done(report)
        gone: list[Step] = []
        for run_id in sorted(self.ids(report), reverse=True)[RUNS_KEPT:]:
            with contextlib.suppress(RunNotFound):
                if not self.read(report, run_id).is_over:
                    continue
            if kept is None or run_id != kept.run_id:
                shutil.rmtree(self._local(report, run_id), ignore_errors=True)
                gone.append(Remove(str(self.directory / report / run_id)))
        self._placement.carry(gone)

    def ids(self, report: str) -> set[str]:
        """The ids of all runs of a report."""
        found: set[str] = set()
        for place in (self.directory, self._under_way):
            with contextlib.suppress(OSError):
                found.update(path.name for path in (place / report).iterdir())
        return {name for name in found if RUN_ID.fullmatch(name)}


def _record(run: Run) -> bytes:
    """The content of its file."""
    return msgspec.json.format(msgspec.json.encode(run), indent=1)


def replace(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a whole file under another name, sync it, and rename it. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    part.replace(path)
