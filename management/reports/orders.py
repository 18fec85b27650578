"""What the reports process and its jobs tell each other."""

from __future__ import annotations

import msgspec

from .gaps import Gap
from .keeping import Keeping
from .runs import Progress
from .stores import Place
from .tariff import Tariff


class Specification(msgspec.Struct, kw_only=True):
    """What to run: all paths absolute; `options` are further `spark.*` keys. `work_directory` is
    emptied; `spark_directory` is for Spark's temporary files, which last as long as the process.
    `tariffs`, oldest first, and `close_after` (seconds after a month's end) are for the cost
    statement. Tables and result are copied to `store`, if it has a url.
    """

    report: str
    parameters: dict[str, str]
    run_id: str
    run_directory: str
    usage_directory: str
    work_directory: str
    keeping: Keeping
    launcher_directory: str
    java_home: str | None
    spark_master: str
    options: dict[str, str]
    spark_directory: str = ""
    reports_directory: str = ""
    tariffs: list[Tariff] = []
    close_after: int = 0
    store: Place = Place()


class Outcome(msgspec.Struct, kw_only=True):
    """How the run ended. `error` is None if it is done; `store_error` says why the result is not in
    the object store. `again`: nothing was done, because it needs another Spark than the one that
    runs; the process ends.
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
    again: bool = False


class Answer(msgspec.Struct, omit_defaults=True):
    """One line to the reports process: either is set."""

    progress: Progress | None = None
    outcome: Outcome | None = None
