"""One run of one report, in a process of its own: `python -m management.reports.job`.

The reports process writes the run's specification, one line of JSON, to standard input and leaves
that pipe open: when it closes, the reports process is gone and this one ends too, and with it
Spark's JVM. Progress and outcome go back as lines of JSON over the descriptor that the
specification names; what Spark prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from management.priority import give_way_as_parent

from . import parameters
from .catalog import REPORTS
from .gaps import Gap
from .keeping import Keeping
from .progress import Watch
from .records import is_full, plain
from .runs import Progress
from .stores import Place
from .tariff import Tariff

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .intake import Intake
    from .shapes import Report, View

ERROR_LENGTH_MAX = 2000
# What the package installs only where it is asked to: `reports` in pyproject.toml.
EXTRA = ("pandas", "pyarrow", "pyspark")

# The job's own directory below the usage directory; emptied by the next run if it is killed.
WORK = "work"

END_OF_TIME = 1 << 60

# With more rows to read than this the JVM starts slower and then computes faster.
LARGE_ROWS = 2_000_000


class Specification(msgspec.Struct, kw_only=True):
    """What to run: all paths absolute; `options` are further `spark.*` keys. `tariffs`, oldest
    first, and `close_after` (seconds after a month's end) are for the cost statement. Tables
    and result are copied to `store`, if it has a url.
    """

    report: str
    parameters: dict[str, str]
    run_id: str
    run_directory: str
    usage_directory: str
    keeping: Keeping
    launcher_directory: str
    java_home: str | None
    spark_master: str
    options: dict[str, str]
    answer_descriptor: int
    reports_directory: str = ""
    tariffs: list[Tariff] = []
    close_after: int = 0
    store: Place = Place()


class Outcome(msgspec.Struct, kw_only=True):
    """How the run ended. `error` is None if it is done; `store_error` says why the result is not in
    the object store.
    """

    rows_read: int | None = None
    rows_unreadable: int | None = None
    rows_written: int | None = None
    hours_compacted: int | None = None
    gaps: list[Gap] = []
    stages: int = 0
    spark: str | None = None
    error: str | None = None
    store_error: str | None = None


class Answer(msgspec.Struct, omit_defaults=True):
    """One line to the reports process: either is set."""

    progress: Progress | None = None
    outcome: Outcome | None = None


def main() -> NoReturn:
    give_way_as_parent()
    specification = msgspec.json.decode(sys.stdin.buffer.readline(), type=Specification)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer = os.fdopen(specification.answer_descriptor, "wb", buffering=0)
    os.set_inheritable(specification.answer_descriptor, False)

    def tell(**fields: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            answer.write(msgspec.json.encode(Answer(**fields)) + b"\n")

    outcome = Outcome()
    watch = Watch(lambda progress: tell(progress=progress))
    scratch = Path(specification.run_directory) / "scratch"
    try:
        scratch.mkdir()
        run(specification, scratch, watch, outcome)
    except Exception as error:
        traceback.print_exc()
        outcome.error = _in_short(error, Path(specification.usage_directory))
    outcome.stages = watch.stages
    watch.close()
    shutil.rmtree(scratch, ignore_errors=True)
    tell(outcome=outcome)
    # The interpreter's own way out waits for Spark's threads, which have nothing left to do.
    sys.stderr.flush()
    os._exit(0 if outcome.error is None else 1)


def run(specification: Specification, scratch: Path, watch: Watch, outcome: Outcome) -> None:
    """Take in what is due, compute the report, write its result; fills `outcome` on the way."""
    from .intake import Intake
    from .session import is_connect, open_session

    now = datetime.now(UTC)
    # On the tables' file system, so that files are moved in by a rename.
    work = Path(specification.usage_directory) / WORK
    intake = Intake(Path(specification.usage_directory), work, specification.keeping, now)
    intake.begin()
    chosen, _ = parameters.read(REPORTS[specification.report], specification.parameters)
    files = intake.tables.files(chosen.grain, chosen.before(now), chosen.end)
    rows = sum(file.rows for file in files)
    connect = is_connect(specification.spark_master)
    java_home = specification.java_home
    spark, outcome.spark = open_session(
        specification.spark_master,
        specification.options,
        Path(java_home) if java_home else None,
        scratch,
        Path(specification.launcher_directory),
        large=rows > LARGE_ROWS,
    )
    if connect:
        # Killing this process would leave the work running on the server.
        signal.signal(signal.SIGTERM, lambda *_: _interrupt(spark))
    watch.watch(spark, connect=connect)
    try:
        watch.step("adding closed hours to the tables")
        outcome.hours_compacted, census = intake.finish(lambda: spark)
        outcome.rows_read, outcome.rows_unreadable = census.lines, census.unreadable
        _compute(spark, Question(specification, chosen, now), intake, scratch, watch, outcome)
        if specification.store.url:
            watch.step("copying to the object store")
            outcome.store_error = _copy(specification, intake)
    finally:
        watch.close()
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)


def _compute(
    spark: SparkSession,
    question: Question,
    intake: Intake,
    scratch: Path,
    watch: Watch,
    outcome: Outcome,
) -> None:
    from . import folding, results, transforms

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
    watch.step("computing")
    rows = folding.read(spark, intake.tables.paths(files))
    recent_rows = None
    if unclosed:
        recent_rows = folding.floored(folding.read(spark, unclosed), chosen.grain)
        rows = rows.unionByName(recent_rows)
    rows = transforms.within(rows, before, end, chosen.vhost)
    if chosen.report.charges:
        watch.step("closing months")
        _close_months(spark, question, intake, recent_rows)
        watch.step("computing")
        frame = _statement(spark, question, rows)
    else:
        free = shutil.disk_usage(question.specification.usage_directory).free
        frame = transformed(chosen.report, rows, view, first, end, free)
    directory = Path(question.specification.run_directory)
    size = sum(file.rows for file in files)
    outcome.rows_written = results.write(frame, view, directory, scratch, size)


@dataclass(frozen=True)
class Question:
    """What is to be answered, and as of when."""

    specification: Specification
    chosen: parameters.Chosen
    now: datetime


def transformed(
    report: Report,
    rows: DataFrame,
    view: View,
    first: datetime,
    end: datetime | None,
    free: int = 0,
) -> DataFrame:
    """What a report computes of rows; `free`: bytes on the disk, for a report that wants them."""
    function = getattr(importlib.import_module(f"{__package__}.{report.module}"), report.transform)
    frame: DataFrame = function(rows, view, first, end, *((free,) if report.wants_disk else ()))
    return frame


def _close_months(
    spark: SparkSession, question: Question, intake: Intake, recent: DataFrame | None
) -> None:
    """Close all months that are over for long enough, whatever the run was asked for."""
    from . import costs, folding
    from .ledger import Ledger

    given, now = question.specification, question.now
    files = intake.tables.files("month")
    months = costs.due(intake.tables.months(), now, given.close_after)
    if not months:
        return
    rows = folding.read(spark, intake.tables.paths(files))
    rows = rows if recent is None else rows.unionByName(recent)
    ledger = Ledger(Path(given.reports_directory))
    costs.close_months(rows, ledger, given.tariffs, months, int(now.timestamp() * 1000))


def _statement(spark: SparkSession, question: Question, rows: DataFrame) -> DataFrame:
    from . import costs
    from .ledger import Ledger

    given, chosen = question.specification, question.chosen
    first, end = chosen.range(question.now)
    paths = Ledger(Path(given.reports_directory)).paths(chosen.view.name, first, end)
    closed = costs.closed_rows(spark, paths, chosen.vhost)
    return costs.statement(costs.priced(rows, chosen.view, given.tariffs), closed, chosen.view)


def _copy(given: Specification, intake: Intake) -> str | None:
    """Copy tables and result to the object store; what went wrong, which the next run repairs."""
    from . import mirror
    from .stores import Store, StoreFailed

    reports = Path(given.reports_directory)
    try:
        mirror.copy(Store(given.store), intake.tables, reports, given.report, given.run_id)
    except (OSError, StoreFailed, msgspec.MsgspecError) as error:
        return _in_short(error, reports)
    return None


def _interrupt(spark: SparkSession) -> NoReturn:
    ended = threading.Thread(target=spark.interruptAll, daemon=True)
    ended.start()
    ended.join(3)
    os._exit(1)


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os.killpg(0, signal.SIGKILL)


def _in_short(error: Exception, place: Path) -> str:
    """The first lines of an error: Spark appends the JVM's stack to its messages."""
    if is_full(error):
        return plain(error, place)
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRA:
        return f"{error.name} is not installed; pip install 'leveret[reports]' adds it"
    text = str(error).split("\n\tat ")[0].split("JVM stacktrace:")[0].strip()
    return f"{type(error).__name__}: {text}"[:ERROR_LENGTH_MAX]


if __name__ == "__main__":
    main()
