"""Runs of reports, in a process of their own: `python -m management.reports.job DESCRIPTOR`.

The reports process writes the specification of a run, one line of JSON, to standard input. When the
run is over it writes that of another one, which finds Spark running, or an empty line, which ends
this process. When the pipe closes, the reports process has ended and this one ends too, and with it
Spark's JVM. Progress and outcome go back as lines of JSON over DESCRIPTOR; what Spark prints goes
to standard error. A run that fails is the process's last one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from management.priority import give_way_as_parent

from . import parameters
from .catalog import REPORTS
from .orders import Answer, Outcome, Specification
from .placement import BrokerPlacement
from .progress import Watch
from .records import is_full, plain
from .runs import READING, STARTING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .intake import Intake

ERROR_LENGTH_MAX = 2000
# What the package installs only where it is asked to: `reports` in pyproject.toml.
EXTRA = ("pandas", "pyarrow", "pyspark")

# With more rows to read than this the JVM starts slower and then computes faster.
LARGE_ROWS = 2_000_000


def main() -> NoReturn:
    give_way_as_parent()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    answer = os.fdopen(descriptor, "wb", buffering=0)
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()

    def tell(**fields: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            answer.write(msgspec.json.encode(Answer(**fields)) + b"\n")

    spark = Spark()
    failed = False
    while not failed and (line := lines.get().strip()):
        specification = msgspec.json.decode(line, type=Specification)
        outcome = _one_run(specification, spark, tell)
        failed = outcome.again or outcome.error is not None
        tell(outcome=outcome)
    spark.stop()
    # The interpreter's own way out waits for Spark's threads, which have nothing left to do.
    sys.stderr.flush()
    os._exit(1 if failed else 0)


def _one_run(given: Specification, spark: Spark, tell: Callable[..., None]) -> Outcome:
    outcome = Outcome()
    step = READING if spark.session is not None else STARTING
    watch = Watch(lambda progress: tell(progress=progress), step)
    scratch = Path(given.run_directory) / "scratch"
    try:
        scratch.mkdir()
        run(given, spark, scratch, watch, outcome)
    except Exception as error:
        traceback.print_exc()
        outcome.error = _in_short(error, Path(given.usage_directory))
    outcome.stages = watch.stages
    watch.close()
    shutil.rmtree(scratch, ignore_errors=True)
    return outcome


class Spark:
    """The session of this process: opened by its first run, the same for all others."""

    def __init__(self) -> None:
        self.session: SparkSession | None = None
        self._words = ""
        self._is_large = False

    def suits(self, rows: int) -> bool:
        """Whether a run over `rows` rows can use the session that is open."""
        return self.session is None or self._is_large or rows <= LARGE_ROWS

    def open(self, given: Specification, rows: int) -> tuple[SparkSession, str]:
        """The session for a run over `rows` rows, and a short text about what runs it."""
        from .session import is_connect, open_session

        if self.session is None:
            self._is_large = rows > LARGE_ROWS
            session, self._words = open_session(
                given.spark_master,
                given.options,
                Path(given.java_home) if given.java_home else None,
                Path(given.spark_directory),
                Path(given.launcher_directory),
                large=self._is_large,
            )
            self.session = session
            if is_connect(given.spark_master):
                # Killing this process would leave the work running on the server.
                signal.signal(signal.SIGTERM, lambda *_: _interrupt(session))
        return self.session, self._words

    def stop(self) -> None:
        if self.session is not None:
            with contextlib.suppress(Exception):  # a JVM that died has nothing to stop
                self.session.stop()
            self.session = None


def run(
    specification: Specification, spark: Spark, scratch: Path, watch: Watch, outcome: Outcome
) -> None:
    """Take in what is due, compute the report, write its result; fills `outcome` on the way."""
    from .answering import Question, compute
    from .intake import Intake
    from .session import is_connect

    now = datetime.now(UTC)
    usage, work = Path(specification.usage_directory), Path(specification.work_directory)
    intake = Intake(usage, work, specification.keeping, now, BrokerPlacement(usage.parent))
    chosen, _ = parameters.read(REPORTS[specification.report], specification.parameters)
    files = intake.tables.files(chosen.grain, chosen.before(now), chosen.end)
    rows = sum(file.rows for file in files)
    if not spark.suits(rows):
        outcome.again = True
        return
    intake.begin()
    try:
        session, outcome.spark = spark.open(specification, rows)
        watch.watch(session, connect=is_connect(specification.spark_master))
        watch.step("adding closed hours to the tables")
        outcome.hours_compacted, census = intake.finish(lambda: session)
        outcome.rows_read, outcome.rows_unreadable = census.lines, census.unreadable
        compute(session, Question(specification, chosen, now), intake, scratch, watch, outcome)
        with contextlib.suppress(Exception):  # the result is there, whatever is known of the way
            watch.settle()
        if specification.store.url:
            watch.step("copying to the object store")
            outcome.store_error = _copy(specification, intake)
    finally:
        watch.close()
        shutil.rmtree(work, ignore_errors=True)


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


def _read_lines(lines: SimpleQueue[bytes]) -> None:
    """Hand on what the reports process writes; end with it, Spark's JVM included."""
    for line in sys.stdin.buffer:
        lines.put(line)
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
