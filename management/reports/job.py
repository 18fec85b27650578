"""One run of one report, in a process of its own: `python -m management.reports.job`.

The reports process writes the run's specification, one line of JSON, to standard input and leaves
that pipe open: when it closes, the reports process is gone and this one ends too, and with it
Spark's JVM. Progress and outcome go back as lines of JSON over the descriptor that the
specification names; what Spark prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from .catalog import REPORTS
from .progress import Watch
from .runs import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ERROR_LENGTH_MAX = 2000


class Specification(msgspec.Struct, kw_only=True):
    """What to run: all paths absolute; `options` are further `spark.*` keys."""

    report: str
    run_id: str
    run_directory: str
    usage_directory: str
    usage_keep: int
    launcher_directory: str
    java_home: str | None
    spark_master: str
    options: dict[str, str]
    answer_descriptor: int


class Outcome(msgspec.Struct, kw_only=True):
    """How the run ended. `error` is None if it is done."""

    rows_read: int | None = None
    rows_unreadable: int | None = None
    rows_written: int | None = None
    hours_compacted: int | None = None
    stages: int = 0
    spark: str | None = None
    error: str | None = None


class Answer(msgspec.Struct, omit_defaults=True):
    """One line to the reports process: either is set."""

    progress: Progress | None = None
    outcome: Outcome | None = None


def main() -> NoReturn:
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
        outcome.error = _in_short(error)
    outcome.stages = watch.stages
    watch.close()
    shutil.rmtree(scratch, ignore_errors=True)
    tell(outcome=outcome)
    # The interpreter's own way out waits for Spark's threads, which have nothing left to do.
    sys.stderr.flush()
    os._exit(0 if outcome.error is None else 1)


def run(specification: Specification, scratch: Path, watch: Watch, outcome: Outcome) -> None:
    """Compact what is due, compute the report, write its result; fills `outcome` on the way."""
    from .session import is_connect, open_session

    connect = is_connect(specification.spark_master)
    java_home = specification.java_home
    spark, outcome.spark = open_session(
        specification.spark_master,
        specification.options,
        Path(java_home) if java_home else None,
        scratch,
        Path(specification.launcher_directory),
    )
    if connect:
        # Killing this process would leave the work running on the server.
        signal.signal(signal.SIGTERM, lambda *_: _interrupt(spark))
    watch.watch(spark, connect=connect)
    try:
        _compute(spark, specification, scratch, watch, outcome)
    finally:
        watch.close()
        spark.stop()


def _compute(
    spark: SparkSession,
    specification: Specification,
    scratch: Path,
    watch: Watch,
    outcome: Outcome,
) -> None:
    from . import results, transforms
    from .feed_input import FeedInput

    report = REPORTS[specification.report]
    now = datetime.now(UTC)
    feed_input = FeedInput(spark, Path(specification.usage_directory))
    feed_input.forget_before(now - timedelta(seconds=specification.usage_keep))
    watch.step("compacting closed hours")
    outcome.hours_compacted, compacted = feed_input.compact()
    watch.step("reading the usage feed")
    feed, census = feed_input.read(now - timedelta(days=report.days), scratch)
    outcome.rows_read = census.lines
    outcome.rows_unreadable = compacted.unreadable + census.unreadable
    watch.step("computing")
    frame = getattr(transforms, report.transform)(feed)
    directory = Path(specification.run_directory)
    outcome.rows_written = results.write(frame, report, specification.run_id, directory)


def _interrupt(spark: SparkSession) -> NoReturn:
    ended = threading.Thread(target=spark.interruptAll, daemon=True)
    ended.start()
    ended.join(3)
    os._exit(1)


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os.killpg(0, signal.SIGKILL)


def _in_short(error: Exception) -> str:
    """The first lines of an error: Spark appends the JVM's stack to its messages."""
    text = str(error).split("\n\tat ")[0].split("JVM stacktrace:")[0].strip()
    return f"{type(error).__name__}: {text}"[:ERROR_LENGTH_MAX]


if __name__ == "__main__":
    main()
