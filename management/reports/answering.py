"""Computes the result of one run, from the usage tables and the hour under way."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from . import costs, folding, parameters, pieces, results, transforms
from .ledger import Ledger
from .orders import Outcome, Specification
from .progress import Watch
from .runs import RunNotFound, Runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .intake import Intake

END_OF_TIME = 1 << 60


@dataclass(frozen=True)
class Question:
    """What is to be answered, and as of when."""

    specification: Specification
    chosen: parameters.Chosen
    now: datetime


def compute(
    spark: SparkSession,
    question: Question,
    intake: Intake,
    scratch: Path,
    watch: Watch,
    outcome: Outcome,
) -> None:
    """Compute a run's result and write it; fills `outcome`. Raises OSError and Spark's errors."""
    chosen, view = question.chosen, question.chosen.view
    first, end = chosen.range(question.now)
    before = chosen.before(question.now)
    watch.step("reading the hour under way")
    unclosed, found, new_gaps = intake.open_hour()
    files = intake.tables.files(chosen.grain, before, end)
    outcome.rows_read = (outcome.rows_read or 0) + found.lines
    outcome.rows_unreadable = (outcome.rows_unreadable or 0) + found.unreadable
    first_ms = int(before.timestamp() * 1000)
    end_ms = int(end.timestamp() * 1000) if end else END_OF_TIME
    recent = [gap for gap in new_gaps if gap.until > first_ms and gap.since < end_ms]
    outcome.gaps = sorted({*intake.tables.gaps(first_ms, end_ms), *recent})
    taken: dict[str, Path] = {}
    planned = []
    if pieces.fits(chosen, sum(file.rows for file in files)):
        planned = pieces.plan(chosen, files, unclosed, first, end)
        taken = pieces.known(planned, _last_result(question.specification))
        files = [file for one in planned if one.period not in taken for file in one.files]
    watch.step("computing")
    rows = folding.read(spark, intake.tables.paths(files))
    recent_rows = None
    if unclosed:
        recent_rows = folding.floored(folding.read(spark, unclosed), chosen.grain)
        rows = rows.unionByName(recent_rows)
    rows = transforms.within(rows, before, end)
    if chosen.report.charges:
        watch.step("closing months")
        _close_months(spark, question, intake, recent_rows)
        watch.step("computing")
        frame = _statement(spark, question, transforms.within(rows, before, end, chosen.vhost))
    else:
        free = shutil.disk_usage(question.specification.usage_directory).free
        frame = transforms.transformed(chosen.report, rows, view, first, end, free, chosen.vhost)
    directory = Path(question.specification.run_directory)
    if planned:
        outcome.rows_written = pieces.write(frame, chosen, planned, taken, directory, scratch)
    else:
        size = sum(file.rows for file in files)
        outcome.rows_written = results.write(frame, view, directory, scratch, size)


def _last_result(given: Specification) -> tuple[Path, ...]:
    """The files of the newest result of the same question."""
    runs = Runs(Path(given.reports_directory))
    last = runs.last_done(given.report, given.parameters)
    try:
        return runs.result(last) if last is not None else ()
    except RunNotFound:
        return ()


def _close_months(
    spark: SparkSession, question: Question, intake: Intake, recent: DataFrame | None
) -> None:
    """Close all months that are over for long enough, whatever the run was asked for."""
    given, now = question.specification, question.now
    files = intake.tables.files("month")
    months = costs.due(intake.tables.months(), now, given.close_after)
    if not months:
        return
    rows = folding.read(spark, intake.tables.paths(files))
    rows = rows if recent is None else rows.unionByName(recent)
    work = Path(given.work_directory)
    work.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(Path(given.reports_directory), intake.tables.placement, work)
    costs.close_months(rows, ledger, given.tariffs, months, int(now.timestamp() * 1000))


def _statement(spark: SparkSession, question: Question, rows: DataFrame) -> DataFrame:
    given, chosen = question.specification, question.chosen
    first, end = chosen.range(question.now)
    paths = Ledger(Path(given.reports_directory)).paths(chosen.view.name, first, end)
    closed = costs.closed_rows(spark, paths, chosen.vhost)
    return costs.statement(costs.priced(rows, chosen.view, given.tariffs), closed, chosen.view)
