"""`python -m tests.bench.usage`: the usage tables, beside pyarrow and DuckDB.

It makes a year of hours of 1,000 queues, then measures a run with one new hour, a rebuild of all
days and months, and the report of a month, each in a process of its own with Spark's start; and the
report once more an hour later, in the Spark that took the hour in, as the schedule has it. DuckDB
(`pip install duckdb`, or a directory of it in PYTHONPATH) and pyarrow do the same sums over the
same files. CPU is that of the process and its JVM; wall time depends on what else the machine does.

With `--columns all` rows have what a busy queue has of all columns of the feed, not only those of
`queue-usage`; with `--written` the new hour is one that a broker's feed wrote, in a process that
gives its queues messages and its clock ten seconds at a time.
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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.parquet

from broker.features.usage.records import columns_of, latency_column
from management.reports import bronze
from management.reports.columns import IDENTITY, MERGED
from management.reports.job import LARGE_ROWS
from management.reports.tables import Tables, Written

NOW = datetime(2026, 11, 21, 12, 10, tzinfo=UTC)
SPARK = "local[2]"
LINES_AN_HOUR = 360
JAVA = "java"
WHOLE_DAYS = "????-??-??.*.parquet"


# What a busy queue has in every hour beside the columns of `queue-usage`, and the latencies.
COMMON = ("confirm", "ack_bytes", "redeliver_bytes", "messages", "message_bytes", "messages_ms",
          "message_bytes_s", "oldest_ms", "consumers", "latency_ms", "latency_max")  # fmt: skip
BUCKETS = range(1, 13)
RARE = 0.01


def rows_of(day: datetime, hours: range, queues: int, seed: int, columns: str) -> pa.Table:
    """Hours of queues that are busy all the time: counters without a pattern to compress."""
    chance = numpy.random.default_rng(seed)
    count = len(hours) * queues
    number = numpy.repeat(numpy.arange(queues), len(hours))
    start = int(day.timestamp() * 1000) + numpy.tile(list(hours), queues) * 3_600_000
    publish, deliver = chance.integers(0, 100_000, (2, count))
    found: dict[str, Any] = {
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
    if columns == "all":
        found |= {name: chance.integers(0, 100_000, count) for name in COMMON}
        found |= {latency_column(one): chance.binomial(deliver, 1 / 2**one) for one in BUCKETS}
        for column in columns_of("queue"):
            if column.name in MERGED and column.name not in found:
                some = chance.random(count) < RARE
                found[column.name] = chance.integers(1, 1000, count) * some
    found |= {name: [""] * count for name in IDENTITY if name not in found}
    names = [name for name in bronze.SCHEMA.names if name in found]
    return pa.table({name: found[name] for name in names}).sort_by(
        [(name, "ascending") for name in (*IDENTITY, "at")]
    )


def make(usage: Path, days: int, queues: int, columns: str) -> None:
    """Tables of whole days before NOW's, and the closed hours of today but one, without gold."""
    work = usage / "made"
    work.mkdir(parents=True)
    midnight = NOW.replace(hour=0, minute=0)
    written = []
    for back in range(days, 0, -1):
        day = midnight - timedelta(days=back)
        path = work / f"{back}.parquet"
        rows = rows_of(day, range(24), queues, back, columns)
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


def _untaken(usage: Path) -> datetime:
    """The last hour before NOW of which there is no feed yet."""
    hours = [path.name[:13] for path in usage.glob("*.jsonl")]
    last = datetime.strptime(min(hours), "%Y-%m-%dT%H") if hours else NOW
    return last.replace(minute=0, tzinfo=UTC) - timedelta(hours=1)


def written_hour(usage: Path, queues: int, hour: datetime) -> Path:
    """One hour of the feed as a broker writes it whose queues each take three messages and give one
    every ten seconds; its clock goes as fast as it can.
    """
    from broker.features.usage.feed import Feed
    from broker.kernel import clock
    from broker.server.app import Broker
    from broker.settings.config import Config
    from tests.bench.feed import INTERVAL_MS, made_up, one_round

    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Config(data_dir=Path(directory)))
        broker.recover()
        vhost = broker.vhosts["/"]
        found = [vhost.declare_queue(f"queue-{number:05d}")[0] for number in range(queues)]
        connections = [made_up(number) for number in range(queues // 10)]
        broker.connections = {each.id: each for each in connections}
        (feed,) = (each for each in broker.features if isinstance(each, Feed))
        now_ms = (clock.now() // 3_600_000 + 1) * 3_600_000
        for _ in range(LINES_AN_HOUR + 2):
            one_round(feed, now_ms, found, connections, True)
            now_ms += INTERVAL_MS
        (closed,) = sorted((Path(directory) / "usage").glob("*.jsonl"))[-1:]
        path = usage / f"{hour:%Y-%m-%dT%H}-{int(hour.timestamp() * 1000)}.jsonl"
        shutil.copyfile(closed, path)
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
            # By size: a process that Java has begun, and that runs no program yet, has Java's.
            memory: dict[str, int] = {}
            for pid in _tree(self._process.pid):
                try:
                    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                self.cpu[pid] = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
                found = dict(line.split(":", 1) for line in status.splitlines())
                memory[found.get("VmSize", "")] = int(found.get("VmRSS", "0").split()[0])
            self.memory = max(self.memory, sum(memory.values()))
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


def measured(name: str, step: str, usage: Path, first: Sequence[str] = ()) -> None:
    """Run one step of this module in a process of its own, which the command `first` may begin, and
    print what it cost.
    """
    module = ["-m", "tests.bench.usage", "--step", step, "--usage", str(usage)]
    command = [*first, sys.executable, *module]
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
    return open_session(SPARK, options, None, scratch, usage / JAVA, large=large)[0]


def step_archive(usage: Path) -> None:
    """The archive of Spark's classes, which the steps after it use, as all runs but the first."""
    from management.reports import class_archive_maker

    class_archive_maker.main(usage / JAVA, None)


def _intake(usage: Path) -> Any:
    from management.reports.intake import Intake
    from management.reports.keeping import Keeping

    return Intake(usage, usage / "work", Keeping(2 * 86400, 400 * 86400, 800 * 86400), NOW)


def step_hour(usage: Path) -> None:
    intake = _intake(usage)
    intake.begin()
    spark = _session(usage, False)
    print(intake.finish(lambda: spark))


def step_schedule(usage: Path) -> None:
    """What the schedule does each hour: take the new hour in, and compute the last month anew."""
    _run(usage, "queue-usage")


def step_begin(usage: Path) -> None:
    """The same, for the first time: without results that it could take over."""
    shutil.rmtree(usage / "run" / "reports", ignore_errors=True)
    _run(usage, "queue-usage")


def step_night(usage: Path) -> None:
    """What the schedule does each day, in one Spark."""
    from management.reports.catalog import REPORTS

    _run(usage, *(one.name for one in REPORTS.values() if one.every == "day" and not one.charges))


def _run(usage: Path, *names: str) -> None:
    from management.reports import answering, parameters
    from management.reports.catalog import REPORTS
    from management.reports.keeping import Keeping
    from management.reports.orders import Outcome, Specification
    from management.reports.progress import Watch
    from management.reports.runs import Runs

    runs = Runs(usage / "reports")
    intake = _intake(usage)
    intake.begin()
    spark = _session(usage, False)
    for name in names:
        began = time.monotonic()
        run = runs.new(name, None, time.time_ns() // 1_000_000)
        directory = runs.path(name, run.run_id)
        (directory / "scratch").mkdir()
        order = Specification(
            report=name, parameters={}, run_id=run.run_id, run_directory=str(directory),
            usage_directory=str(usage), work_directory=str(usage / "work"),
            keeping=Keeping(0, 0, 0), launcher_directory="", java_home=None,
            spark_master="", options={}, reports_directory=str(usage / "reports"),
        )  # fmt: skip
        intake.finish(lambda: spark)
        outcome, chosen = Outcome(), parameters.read(REPORTS[name], {})[0]
        question = answering.Question(order, chosen, NOW)
        watch = Watch(lambda _: None)
        answering.compute(spark, question, intake, directory / "scratch", watch, outcome)
        run.state = "done"
        runs.write(run)
        print(name, outcome.rows_written, f"{time.monotonic() - began:.1f} s", flush=True)


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


def _duckdb() -> Any:
    # No package of the tests: it is brought along for a comparison.
    duckdb = importlib.import_module("duckdb")
    duckdb.sql("SET threads=2")
    return duckdb


def step_duckdb_hour(usage: Path) -> None:
    """The lines of the new hour by object, folded into the month of days and the year of months."""
    duckdb = _duckdb()
    path = min(usage.glob("*.jsonl"))  # the newest: each hour made is before the one made last
    rules = [name for name in Tables(usage / "tables").files("day")[0].columns
             if name not in ("lines", "message_bytes_s")]  # fmt: skip
    numbers = dict.fromkeys(rules, "BIGINT")
    texts = dict.fromkeys(IDENTITY, "VARCHAR")
    keys = ", ".join(f"coalesce({name}, '') {name}" for name in IDENTITY)
    sums = ", ".join(
        f"{'sum' if MERGED[name] == 'sum' else 'max'}({name})::BIGINT {name}" for name in rules
    )
    duckdb.sql(
        f"CREATE TABLE hour AS SELECT {keys}, {sums} FROM read_json('{path}', "  # noqa: S608
        f"format='newline_delimited', columns={texts | numbers!r}) GROUP BY ALL"
    )
    for grain in ("day", "month"):
        file = Tables(usage / "tables").files(grain)[-1]  # type: ignore[arg-type]
        old = usage / "tables" / file.path
        duckdb.sql(
            f'COPY (SELECT "at", {", ".join(IDENTITY)}, {sums} FROM ('  # noqa: S608
            f"SELECT \"at\", {', '.join([*IDENTITY, *rules])} FROM read_parquet('{old}') UNION ALL "
            f"BY NAME SELECT date_trunc('{grain}', TIMESTAMPTZ '{NOW}') \"at\", * FROM hour) "
            f"GROUP BY ALL ORDER BY kind, vhost, name, \"at\") TO '{usage}/duckdb-new.parquet' "
            "(COMPRESSION zstd)"
        )


def step_duckdb_month(usage: Path) -> None:
    """The rows of `queue-usage` over the last month."""
    duckdb = _duckdb()
    first = NOW - timedelta(days=31)
    files = [str(path) for path in Tables(usage / "tables").paths(
        Tables(usage / "tables").files("hour", first))]  # fmt: skip
    columns = {
        name for file in Tables(usage / "tables").files("hour", first) for name in file.columns
    }
    out = "+".join(
        name for name in ("deliver", "deliver_no_ack", "get", "get_no_ack") if name in columns
    )
    duckdb.sql(
        f'COPY (SELECT "at", vhost, name, sum(publish), sum(publish_bytes), '  # noqa: S608
        f"sum({out}), sum(deliver_bytes), sum(ack), sum(redeliver), max(messages_peak) "
        f"FROM read_parquet("
        f"{files!r}, union_by_name=true) WHERE kind='queue' AND \"at\" >= TIMESTAMPTZ '{first}' "
        f"GROUP BY ALL ORDER BY \"at\" DESC, vhost, name) TO '{usage}/duckdb-result.parquet' "
        "(COMPRESSION zstd)"
    )


def step_duckdb(usage: Path) -> None:
    duckdb = _duckdb()
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
    "begin": step_begin,
    "schedule": step_schedule,
    "night": step_night,
    "duckdb-hour": step_duckdb_hour,
    "duckdb-month": step_duckdb_month,
    "rebuild": step_rebuild,
    "month": step_month,
    "year": step_year,
    "duckdb": step_duckdb,
    "pyarrow": step_pyarrow,
    "archive": step_archive,
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
    parser.add_argument("--columns", choices=("report", "all"), default="report")
    parser.add_argument("--written", action="store_true", help="new hours are a broker's")
    parser.add_argument("--only", default="", help="steps, comma-separated")
    parser.add_argument("--usage", type=Path, help="keep the data here, and use what is there")
    parser.add_argument("--realtime", action="store_true", help="before all other programs (chrt)")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        STEPS[options.step](options.usage)
        sys.stdout.flush()
        os._exit(0)
    usage = options.usage or Path(tempfile.mkdtemp(prefix="leveret-usage-"))
    if not (usage / "tables").exists():
        print(f"making {options.days} days of {options.queues} queues", flush=True)
        make(usage, options.days, options.queues, options.columns)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    rebuilt = f"rebuild {options.days} days into days and months"
    names = {
        "archive": "the archive of Spark's classes",
        "rebuild": rebuilt,
        "begin": "report: a month, with results kept by the day",
        "schedule": "run with one new hour, and that report anew",
        "night": "all daily reports in one Spark",
        "hour": "run with one new hour over it",
        "duckdb-hour": "DuckDB: one new hour",
        "duckdb-month": "DuckDB: report: a month",
        "month": "report: a month",
        "year": "report: a year",
        "duckdb": f"DuckDB: {rebuilt}",
        "pyarrow": f"pyarrow: {rebuilt}",
    }
    wanted = options.only.split(",") if options.only else list(names)
    for step in wanted:
        if step in ("hour", "schedule"):
            hour = _untaken(usage)
            path = (written_hour if options.written else make_hour)(usage, options.queues, hour)
            print(f"an hour of the feed: {path.stat().st_size / 1e6:.0f} MB", flush=True)
        measured(names[step], step, usage, ("chrt", "-f", "5") if options.realtime else ())
    at_rest(usage)
    if options.usage is None:
        shutil.rmtree(usage)


if __name__ == "__main__":
    main()
