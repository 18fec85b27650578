"""The feed taken into the usage tables: exactly once, whatever is cut off, and folded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet

from broker.store.files import disk
from management.reports import bronze, folding
from management.reports.columns import IDENTITY, MERGED
from management.reports.gaps import Gap
from management.reports.intake import Intake
from management.reports.keeping import Keeping
from management.reports.tables import Tables
from tests.reports.feeds import HOUR_MS, TEN, queue_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
KEEPING = Keeping(lines=2 * 86400, hours=93 * 86400, everything=400 * 86400)
DAY = timedelta(days=1)


@pytest.fixture
def usage(tmp_path: Path) -> Path:
    """Closed hours of yesterday and today, one with a torn line in it, and an open one."""
    directory = tmp_path / "odd [name] {*}"
    directory.mkdir()
    (directory / "2026-11-20T22-1.jsonl").write_text(
        queue_line("q0", publish=1000, messages=9, until=TEN - HOUR_MS)
    )
    (directory / "2026-11-21T08-1.jsonl").write_text(
        "".join(queue_line(f"q{number}", publish=1) for number in range(100))
    )
    (directory / "2026-11-21T09-2.jsonl").write_text(
        queue_line("q0", publish=5) + '{"v":1,"ki\n' + "\n" + queue_line("q1", publish=6)
    )
    (directory / "2026-11-21T10-3.jsonl.open").write_text(
        queue_line("q0", publish=7) + '{"v":1,"kind":"queue","na'
    )
    return directory


class Runs:
    """Runs of the intake, each with a work directory as a new process finds it."""

    def __init__(self, spark: SparkSession, usage: Path) -> None:
        self.spark, self.usage = spark, usage

    def intake(self, now: datetime = NOW, keeping: Keeping = KEEPING) -> Intake:
        return Intake(self.usage, self.usage / "work", keeping, now)

    def run(self, now: datetime = NOW, keeping: Keeping = KEEPING) -> tuple[int, bronze.Census]:
        intake = self.intake(now, keeping)
        intake.begin()
        return intake.finish(lambda: self.spark)

    def rows(self, grain: str) -> list[dict[str, Any]]:
        tables = Tables(self.usage / "tables")
        paths = tables.paths(tables.files(grain))  # type: ignore[arg-type]
        found = [pyarrow.parquet.read_table(path).to_pylist() for path in paths]
        return [row for rows in found for row in rows]

    def published(self, grain: str, name: str = "") -> int:
        return sum(row["publish"] for row in self.rows(grain) if name in ("", row["name"]))


@pytest.fixture
def runs(spark: SparkSession, usage: Path) -> Runs:
    return Runs(spark, usage)


def test_it_takes_closed_hours_into_hours_days_and_months(runs: Runs) -> None:
    files, census = runs.run()
    assert (files, census.lines, census.unreadable) == (3, 104, 1)
    for grain in ("hour", "day", "month"):
        assert runs.published(grain) == 1000 + 100 + 5 + 6
        assert runs.published(grain, "q0") == 1006
    assert {row["at"].hour for row in runs.rows("hour")} == {22, 8, 9}
    assert {row["at"].isoformat()[:16] for row in runs.rows("day")} == {
        "2026-11-20T00:00", "2026-11-21T00:00"
    }  # fmt: skip
    (month,) = [row for row in runs.rows("month") if row["name"] == "q0"]
    assert (month["at"].isoformat()[:10], month["lines"]) == ("2026-11-01", 3)
    periods = {file.period for file in Tables(runs.usage / "tables").files("hour")}
    assert periods == {"2026-11-20", "2026-11-21T08-1", "2026-11-21T09-2"}
    assert runs.run() == (0, bronze.Census())


def test_it_adds_up_storage_of_a_month_that_milliseconds_have_no_room_for(runs: Runs) -> None:
    # 5 TB of bodies for half an hour each: 9e18 byte milliseconds, and twice that is past 64 bits.
    held_ms = 5 * 10**12 * 1_800_000
    for hour in (8, 9):
        (runs.usage / f"2026-11-21T0{hour}-7.jsonl").write_text(
            queue_line("large", message_bytes_ms=held_ms)
        )
    runs.run()
    for grain in ("hour", "day", "month"):
        held = [row["message_bytes_s"] for row in runs.rows(grain) if row["name"] == "large"]
        assert sum(held) == 2 * held_ms // 1000


def test_it_reads_storage_of_tables_that_hold_byte_milliseconds(runs: Runs, tmp_path: Path) -> None:
    hour = datetime(2026, 11, 21, 8, tzinfo=UTC)
    old = {"at": [hour], "kind": ["queue"], "name": ["q"], "message_bytes_ms": [7_999]}
    new = {"at": [hour], "kind": ["queue"], "name": ["q"], "message_bytes_s": [5]}
    paths = []
    for number, columns in enumerate((old, new)):
        paths.append(tmp_path / f"{number}.parquet")
        table = pa.table(columns, pa.schema([(name, bronze.SCHEMA.field(name).type)
                         if name in bronze.SCHEMA.names else (name, pa.int64())
                         for name in columns]))  # fmt: skip
        pyarrow.parquet.write_table(table, paths[-1])
    found = folding.read(runs.spark, paths, ["message_bytes_ms"]).collect()
    assert sorted(row["message_bytes_s"] for row in found) == [5, 7]


def test_it_adds_new_hours_to_the_days_and_months_that_are_there(runs: Runs) -> None:
    runs.run()
    (runs.usage / "2026-11-21T11-4.jsonl").write_text(
        queue_line("q0", publish=50, messages=3, messages_peak=70)
    )
    (runs.usage / "2026-11-19T23-5.jsonl").write_text(queue_line("q0", publish=200))
    assert runs.run()[0] == 2
    for grain in ("hour", "day", "month"):
        assert runs.published(grain, "q0") == 1256
    today = [row for row in runs.rows("day") if row["name"] == "q0" and row["at"].day == 21]
    assert [(row["publish"], row["messages_peak"]) for row in today] == [(56, 70)]


def test_it_makes_one_file_of_the_hours_of_a_day_that_is_over(runs: Runs) -> None:
    runs.run()
    (runs.usage / "2026-11-22T00-6.jsonl").write_text(queue_line("q0", publish=4))
    runs.run(NOW + DAY)
    periods = [file.period for file in Tables(runs.usage / "tables").files("hour")]
    assert periods == ["2026-11-20", "2026-11-21", "2026-11-22T00-6"]
    assert runs.published("hour") == runs.published("day") == runs.published("month") == 1115


@pytest.mark.parametrize("place", ["while reading", "while folding", "before the manifest"])
def test_it_neither_loses_nor_doubles_a_line_when_a_run_is_killed(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    if place == "while reading":
        monkeypatch.setattr(bronze, "write", kill)
    elif place == "while folding":
        folded = folding.write_places

        def fold_and_die(*arguments: Any) -> Any:
            folded(*arguments)
            raise Killed

        monkeypatch.setattr(folding, "write_places", fold_and_die)
    else:
        monkeypatch.setattr(disk, "write_atomic", kill)
    with pytest.raises(Killed):
        runs.run()
    monkeypatch.undo()
    assert runs.rows("hour") == []
    assert runs.run()[0] == 3
    for grain in ("hour", "day", "month"):
        assert runs.published(grain) == 1111
    assert runs.run()[0] == 0
    listed = {path.name for path in (runs.usage / "tables").glob("*/*")}
    assert listed == {file.name for file in Tables(runs.usage / "tables").manifest.files}


def test_it_keeps_replaced_files_for_readers_and_deletes_them_later(runs: Runs) -> None:
    runs.run()
    before = set((runs.usage / "tables" / "day").iterdir())
    (runs.usage / "2026-11-21T11-4.jsonl").write_text(queue_line("q0", publish=50))
    runs.run()
    assert before < set((runs.usage / "tables" / "day").iterdir())
    runs.run(NOW + timedelta(minutes=11))
    assert not before & set((runs.usage / "tables" / "day").iterdir())
    assert runs.published("day") == 1161


def test_it_deletes_feed_files_some_time_after_they_were_taken_in(runs: Runs) -> None:
    runs.run()
    assert len(list(runs.usage.glob("*.jsonl"))) == 3
    runs.run(NOW + 1.8 * DAY)
    assert sorted(path.name[:13] for path in runs.usage.glob("*.jsonl")) == [
        "2026-11-21T08", "2026-11-21T09"
    ]  # fmt: skip
    runs.run(NOW + 3 * DAY)
    assert list(runs.usage.glob("*.jsonl")) == []
    runs.run(NOW + 4 * DAY)
    assert Tables(runs.usage / "tables").manifest.consumed == {}
    assert runs.published("hour") == runs.published("month") == 1111


def test_it_deletes_feed_files_that_are_too_old_also_where_no_run_succeeds(runs: Runs) -> None:
    old = runs.usage / "2025-10-17T11-8.jsonl"
    kept = runs.usage / "2025-10-17T12-8.jsonl"
    for path in (old, kept):
        path.write_text(queue_line("q0", publish=1))
    before = set(runs.usage.glob("*.jsonl"))
    runs.intake(datetime(2026, 11, 21, 13, tzinfo=UTC)).begin()
    assert before - set(runs.usage.glob("*.jsonl")) == {old}


def test_it_keeps_old_hours_by_the_day_only(runs: Runs) -> None:
    short = Keeping(lines=0, hours=86400, everything=400 * 86400)
    runs.run(keeping=short)
    (runs.usage / "2026-11-24T11-4.jsonl").write_text(queue_line("q0", publish=1))
    (runs.usage / "2026-11-20T01-9.jsonl").write_text(queue_line("late", publish=3))
    runs.run(NOW + 3 * DAY, short)
    assert {row["at"].day for row in runs.rows("hour")} == {24}
    assert runs.published("day") == runs.published("month") == 1111 + 1 + 3
    assert runs.published("day", "late") == 3


def test_it_forgets_what_is_too_old(runs: Runs) -> None:
    short = Keeping(lines=0, hours=86400, everything=31 * 86400)
    runs.run(keeping=short)
    later = datetime(2027, 2, 3, 12, tzinfo=UTC)
    (runs.usage / "2027-02-03T11-4.jsonl").write_text(queue_line("q0", publish=1))
    runs.run(later, short)
    assert runs.published("hour") == runs.published("day") == runs.published("month") == 1


def test_a_rebuild_makes_the_same_days_and_months(runs: Runs) -> None:
    short = Keeping(lines=0, hours=86400, everything=400 * 86400)
    runs.run()
    (runs.usage / "2026-11-22T11-4.jsonl").write_text(
        queue_line("q0", publish=1, messages=2, until=TEN + 25 * HOUR_MS)
    )
    runs.run(NOW + DAY, short)
    assert {row["at"].day for row in runs.rows("hour")} == {21, 22}
    before = {grain: runs.rows(grain) for grain in ("day", "month")}
    assert before["month"]
    tables = Tables(runs.usage / "tables")
    written = folding.rebuild(runs.spark, tables, runs.usage / "work")
    tables.publish(written, now_ms=0)
    assert {grain: runs.rows(grain) for grain in ("day", "month")} == before


def test_it_takes_in_what_earlier_versions_compacted(runs: Runs) -> None:
    leaf = runs.usage / "compacted" / "date=2026-11-18" / "hour=7" / "begun=77"
    leaf.mkdir(parents=True)
    lines = [json.loads(queue_line("old", publish=8)), json.loads(queue_line("old", ack=2))]
    pyarrow.parquet.write_table(pa.Table.from_pylist(lines), leaf / "part-0.parquet")
    (runs.usage / "2026-11-18T07-77.jsonl").write_text(queue_line("old", publish=8))
    runs.run()
    (row,) = [row for row in runs.rows("hour") if row["name"] == "old"]
    assert (row["publish"], row["at"].isoformat()[:13]) == (8, "2026-11-18T07")
    runs.run()
    assert not leaf.exists()
    assert runs.published("day", "old") == 8


def test_it_leaves_files_of_a_newer_version_alone(runs: Runs) -> None:
    newer = runs.usage / "2026-11-21T07-9.jsonl"
    newer.write_text(queue_line("q0", publish=1) + '{"v":99,"kind":"tenant"}\n')
    assert runs.run()[0] == 3
    assert runs.run(NOW + 9 * DAY)[0] == 0
    assert list(runs.usage.glob("*.jsonl")) == [newer]


def test_it_reads_the_hour_under_way_and_leaves_it(runs: Runs) -> None:
    intake = runs.intake()
    intake.begin()
    intake.finish(lambda: runs.spark)
    paths, census, gaps = intake.open_hour()
    assert gaps == []
    (row,) = [row for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]
    assert (row["name"], row["publish"], row["at"].hour, census.lines) == ("q0", 7, 10, 1)
    path = runs.usage / "2026-11-21T10-3.jsonl.open"
    path.rename(path.with_suffix(""))
    paths, census, _ = intake.open_hour()
    assert (len(paths), census.unreadable) == (1, 1), (
        "its hour ended since the others were taken in"
    )
    assert runs.published("day") == 1111


def test_it_needs_no_spark_when_there_is_nothing_new(runs: Runs) -> None:
    def no_spark() -> SparkSession:
        raise AssertionError("Spark was asked for")

    (runs.usage / "2026-11-21T06-9.jsonl").write_text("")
    for path in runs.usage.glob("*T0*.jsonl"):
        path.write_text("" if path.name < "2026-11-21T07" else '{"v":1,"k')
    (runs.usage / "2026-11-20T22-1.jsonl").unlink()
    files, census = runs.intake().finish(no_spark)
    assert (files, census.unreadable) == (3, 2)
    assert runs.intake().finish(no_spark) == (0, bronze.Census())


def test_it_marks_gaps_and_counts_only_lines_that_count(tmp_path: Path, runs: Runs) -> None:
    lines = [
        {"v": 2, "kind": "gap", "since": 5, "until": 9, "run": 2, "reason": "unclean"},
        {"v": 2, "kind": "round", "since": 9, "until": 19, "run": 2},
        {"v": 1, "kind": "connection", "vhost": "/", "name": "c", "user": "u", "recv_oct": 99},
        {"v": 2, "kind": "connection", "vhost": "/", "name": "c", "id": "7", "recv_oct": 4},
        {"v": 2, "kind": "user", "vhost": "/", "user": "u", "client": "pika", "recv_oct": 4},
    ]
    (runs.usage / "2026-11-21T11-4.jsonl").write_text("\n".join(map(json.dumps, lines)))
    runs.run()
    tables = Tables(runs.usage / "tables")
    assert tables.gaps(0, 100) == [Gap(5, 9, "unclean")] and tables.gaps(9, 100) == []
    kinds = {grain: [(row["kind"], row.get("recv_oct"), row["client"]) for row in runs.rows(grain)
                     if row["kind"] != "queue"] for grain in ("hour", "day")}  # fmt: skip
    assert kinds["hour"] == [("connection", 4, ""), ("user", 4, "pika")]
    assert kinds["day"] == [("user", 4, "pika")]


def test_rows_have_the_same_columns_on_both_sides() -> None:
    assert bronze.SCHEMA.names == folding.ROW.fieldNames() == ["at", *IDENTITY, *MERGED]


def test_it_sums_lines_by_the_rule_of_each_column(tmp_path: Path) -> None:
    path = tmp_path / "2026-11-21T08-1.jsonl"
    path.write_text(
        queue_line("a", publish=3, messages=3, messages_peak=8)
        + queue_line("a", publish=2, ack=4, messages=1)
        + queue_line("a", "shop", messages=4)
        + '{"v":1,"kind":"user","vhost":"/","user":"anna","recv_oct":1000,"new_key":{"a":[1]}}\n'
        + '{"v":1,"kind":"queue","publish":"many"}\n[1]\n{"v":1,"kind":"queue","publish":1e3}\n'
    )
    hour = bronze.hour_of(bronze.Source("2026-11-21T08-1", path))
    rows, census = hour.rows, hour.census
    assert (census.lines, census.unreadable) == (7, 3)
    found = {(row["kind"], row["vhost"], row["name"]): row for row in rows.to_pylist()}
    a = found["queue", "/", "a"]
    assert (a["publish"], a["ack"], a["messages"], a["messages_peak"]) == (5, 4, 1, 8)
    assert a["lines"] == 2
    assert found["queue", "shop", "a"]["messages_peak"] == 4
    assert found["user", "/", ""]["recv_oct"] == 1000


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    yield lambda size: monkeypatch.setattr(bronze, "CHUNK", size)


def test_it_reads_files_longer_than_a_chunk(
    tmp_path: Path, small_chunks: Callable[[int], None]
) -> None:
    small_chunks(1000)
    path = tmp_path / "2026-11-21T08-1.jsonl"
    lines = [queue_line(f"q{number % 7}", publish=number, messages=number) for number in range(99)]
    path.write_text("".join(lines[:50]) + '{"v":1,"ki\n' + "".join(lines[50:]))
    hour = bronze.hour_of(bronze.Source("2026-11-21T08-1", path))
    rows, census = hour.rows, hour.census
    assert (census.lines, census.unreadable) == (100, 1)
    assert sum(rows["publish"].to_pylist()) == sum(range(99))
    assert rows.to_pylist()[0]["messages"] == 98
