"""`python -m tests.bench.usage`: the usage tables with generated data, beside pyarrow and DuckDB.

It makes a year of hours of 1,000 queues, then measures a run with one new hour, a rebuild of all
days and months, and the report of a month, each in a process of its own with Spark's start. DuckDB
(`pip install duckdb`, or a directory of it in PYTHONPATH) and pyarrow do the same sums over the
same files. CPU is that of the process and its JVM; wall time depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.parquet

from management.reports import bronze
from management.reports.columns import IDENTITY, MERGED
from management.reports.job import LARGE_ROWS
from management.reports.tables import Tables, Written

NOW = datetime(2026, 11, 21, 12, 10, tzinfo=UTC)
SPARK = "local[2]"
LINES_AN_HOUR = 360
WHOLE_DAYS = "????-??-??.*.parquet"


def rows_of(day: datetime, hours: range, queues: int, seed: int) -> pa.Table:
    """Hours of queues that are busy all the time: counters without a pattern to compress."""
    chance = numpy.random.default_rng(seed)
    count = len(hours) * queues
    number = numpy.repeat(numpy.arange(queues), len(hours))
    start = int(day.timestamp() * 1000) + numpy.tile(list(hours), queues) * 3_600_000
    publish, deliver = chance.integers(0, 100_000, (2, count))
    columns: dict[str, Any] = {
        "at": pa.array(start * 1000, pa.timestamp("us", "UTC")),
        "kind": ["queue"] * count,
        "vhost": [f"vhost-{queue % 10}" for queue in number],
        "name": [f"queue-{queue:05d}" for queue in number],
        "since": start,
        "until": start + 3_600_000,
        "lines": [LINES_AN_HOUR] * count,
        "publish": publish,
        "publish_bytes": publish * chance.integers(90, 110, count),
        "deliver": deliver,
        "deliver_bytes": deliver * chance.integers(90, 110, count),
        "redeliver": chance.integers(0, 10, count),
        "ack": deliver,
        "messages_peak": chance.integers(0, 10_000, count),
    }
    columns |= {name: [""] * count for name in IDENTITY if name not in columns}
    names = [name for name in bronze.SCHEMA.names if name in columns]
    return pa.table({name: columns[name] for name in names}).sort_by(
        [(name, "ascending") for name in (*IDENTITY, "at")]
    )


def make(usage: Path, days: int, queues: int) -> None:
    """Tables of whole days before NOW's, and the closed hours of today but one, without gold."""
    work = usage / "made"
    work.mkdir(parents=True)
    midnight = NOW.replace(hour=0, minute=0)
    written = []
    for back in range(days, 0, -1):
        day = midnight - timedelta(days=back)
        path = work / f"{back}.parquet"
        rows = rows_of(day, range(24), queues, back)
        bronze.write(rows, path)
        written.append(Written("hour", f"{day:%Y-%m-%d}", path))
    Tables(usage / "tables").publish(written, now_ms=0)


def make_hour(usage: Path, queues: int, hour: datetime) -> Path:
    """One hour of the feed: every queue has a line every ten seconds."""
    start = int(hour.timestamp() * 1000)
    path = usage / f"{hour:%Y-%m-%dT%H}-{start}.jsonl"
    chance = random.Random(start)
    with path.open("w") as file:
        for since in range(start, start + 3_600_000, 10_000):
            for number in range(queues):
                count = chance.randrange(1, 2000)
                line = {"v": 1, "kind": "queue", "since": since, "until": since + 10_000,
                        "vhost": f"vhost-{number % 10}", "name": f"queue-{number:05d}",
                        "publish": count, "publish_bytes": count * 100, "deliver": count,
                        "deliver_bytes": count * 100, "ack": count, "messages": count,
                        "message_bytes": count * 100, "messages_peak": count + 9,
                        "consumers": 2}  # fmt: skip
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
    return path


class Cost:
    """Wall time, CPU and the most memory of a process and its children, looked at from outside."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.cpu: dict[int, float] = {}
        self.memory = 0
        self._process = process
        self._began = time.monotonic()
        watcher = threading.Thread(target=self._watch, daemon=True)
        watcher.start()
        self.status = process.wait()
        self.wall = time.monotonic() - self._began

    def _watch(self) -> None:
        while self._process.poll() is None:
            memory = 0
            for pid in _tree(self._process.pid):
                try:
                    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                self.cpu[pid] = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
                rss = [line for line in status.splitlines() if line.startswith("VmRSS:")]
                memory += int(rss[0].split()[1]) if rss else 0
            self.memory = max(self.memory, memory)
            time.sleep(0.05)

    def __str__(self) -> str:
        cpu = sum(self.cpu.values())
        return f"{self.wall:6.1f} s wall {cpu:6.1f} s CPU {self.memory // 1024:5d} MB"


def _tree(pid: int) -> list[int]:
    found = [pid]
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return found
    for child in children:
        found += _tree(int(child))
    return found


def measured(name: str, step: str, usage: Path) -> None:
    """Run one step of this module in a process of its own and print what it cost."""
    command = [sys.executable, "-m", "tests.bench.usage", "--step", step, "--usage", str(usage)]
    with (usage / f"{step}.log").open("wb") as log:
        cost = Cost(subprocess.Popen(command, stdout=log, stderr=log))
    failed = "" if cost.status == 0 else f"  FAILED, see {usage / f'{step}.log'}"
    print(f"{name:52} {cost}{failed}", flush=True)


def _session(usage: Path, large: bool) -> Any:
    from management.reports.session import open_session

    scratch = usage / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    options = {"spark.driver.memory": "512m"}
    return open_session(SPARK, options, None, scratch, scratch / "java", large=large)[0]


def step_hour(usage: Path) -> None:
    from management.reports.intake import Intake
    from management.reports.keeping import Keeping

    intake = Intake(usage, usage / "work", Keeping(2 * 86400, 400 * 86400, 800 * 86400), NOW)
    intake.begin()
    spark = _session(usage, False)
    print(intake.finish(lambda: spark))


def step_rebuild(usage: Path) -> None:
    from management.reports import folding

    spark = _session(usage, True)
    tables = Tables(usage / "tables")
    tables.publish(folding.rebuild(spark, tables, usage / "work"), now_ms=0)


def _report(usage: Path, days: int) -> None:
    from management.reports import folding, results, transforms
    from management.reports.catalog import QUEUE_USAGE

    tables = Tables(usage / "tables")
    first = NOW - timedelta(days=days)
    files = tables.files("hour", first)
    rows = sum(file.rows for file in files)
    spark = _session(usage, rows > LARGE_ROWS)
    shutil.rmtree(usage / "result", ignore_errors=True)
    view = QUEUE_USAGE.view()
    frame = transforms.traffic(folding.read(spark, tables.paths(files)), view, first, None)
    print(results.write(frame, view, usage, usage / "scratch", rows))


def step_month(usage: Path) -> None:
    _report(usage, 31)


def step_year(usage: Path) -> None:
    _report(usage, 365)


def step_duckdb(usage: Path) -> None:
    # No package of the tests: whoever compares with it brings it along.
    duckdb = importlib.import_module("duckdb")

    duckdb.sql("SET threads=2")
    rules = {name: MERGED[name] for name in Tables(usage / "tables").files("hour")[0].columns}
    sums = ", ".join(f"sum({name}) {name}" for name, rule in rules.items() if rule == "sum")
    rest = ", ".join(f"max({name}) {name}" for name, rule in rules.items() if rule != "sum")
    files = [str(path) for path in (usage / "tables/hour").glob(WHOLE_DAYS)]
    for grain in ("day", "month"):
        duckdb.sql(
            f'COPY (SELECT date_trunc(\'{grain}\', "at") AS "at", kind, vhost, name, '  # noqa: S608
            f"{sums}, {rest} FROM read_parquet({files!r}) GROUP BY ALL ORDER BY kind, vhost, name)"
            f" TO '{usage}/duckdb-{grain}.parquet' (COMPRESSION zstd)"
        )


def step_pyarrow(usage: Path) -> None:
    import pyarrow.compute as pc

    pa.set_cpu_count(2)
    columns = Tables(usage / "tables").files("hour")[0].columns
    rules = {name: "sum" if MERGED[name] == "sum" else "max" for name in columns}
    for grain in ("day", "month"):
        parts = []
        for path in sorted((usage / "tables/hour").glob(WHOLE_DAYS)):
            table = pyarrow.parquet.read_table(path, columns=["at", *IDENTITY, *columns])
            at = pc.floor_temporal(table["at"], unit=grain)
            table = table.set_column(0, "at", at)
            keys = ["at", *IDENTITY]
            grouped = table.group_by(keys).aggregate(list(rules.items()))
            parts.append(grouped.rename_columns([*keys, *rules]))
        whole = pa.concat_tables(parts)
        if grain == "month":
            whole = whole.group_by(keys).aggregate(list(rules.items()))
        pyarrow.parquet.write_table(whole, usage / f"pyarrow-{grain}.parquet", compression="zstd")


STEPS: dict[str, Callable[[Path], None]] = {
    "hour": step_hour,
    "rebuild": step_rebuild,
    "month": step_month,
    "year": step_year,
    "duckdb": step_duckdb,
    "pyarrow": step_pyarrow,
}


def at_rest(usage: Path) -> None:
    tables = Tables(usage / "tables")
    for grain in ("hour", "day", "month"):
        files = tables.files(grain)  # type: ignore[arg-type]
        rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
        if rows:
            print(f"{grain:5} {len(files):4} files {rows:9} rows {size / rows:6.1f} bytes a row")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.usage", description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--only", default="", help="steps, comma-separated")
    parser.add_argument("--usage", type=Path, help="keep the data here, and use what is there")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        STEPS[options.step](options.usage)
        sys.stdout.flush()
        os._exit(0)
    usage = options.usage or Path(tempfile.mkdtemp(prefix="leveret-usage-"))
    if not (usage / "tables").exists():
        print(f"making {options.days} days of {options.queues} queues", flush=True)
        make(usage, options.days, options.queues)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    rebuilt = f"rebuild {options.days} days into days and months"
    names = {
        "rebuild": rebuilt,
        "hour": "run with one new hour over it",
        "month": "report: a month",
        "year": "report: a year",
        "duckdb": f"DuckDB: {rebuilt}",
        "pyarrow": f"pyarrow: {rebuilt}",
    }
    wanted = options.only.split(",") if options.only else list(names)
    for step in wanted:
        if step == "hour":
            make_hour(usage, options.queues, NOW.replace(minute=0) - timedelta(hours=1))
        measured(names[step], step, usage)
    at_rest(usage)
    if options.usage is None:
        shutil.rmtree(usage)


if __name__ == "__main__":
    main()
