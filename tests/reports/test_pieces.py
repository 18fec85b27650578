"""Results in pieces: what did not change is taken over, and the rows are those of a whole run."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet

from management.reports import answering, pages, parameters, pieces, progress
from management.reports.catalog import REPORTS
from management.reports.intake import Intake
from management.reports.keeping import Keeping
from management.reports.orders import Outcome, Specification
from management.reports.progress import Watch, from_tracker
from management.reports.runs import Progress, Run, Runs
from tests.reports.feeds import queue_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
KEEPING = Keeping(lines=2 * 86400, hours=93 * 86400, everything=400 * 86400)
FULL_DAYS = ["2026-11-18", "2026-11-19", "2026-11-20"]


class Appliance:
    """A data directory whose reports are computed in this process, at any time."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        self.usage, self.runs, self.spark = directory / "usage", Runs(directory / "reports"), spark
        self.usage.mkdir()
        self._numbers = itertools.count()
        for back in range(3, 0, -1):
            for hour in (1, 13):
                self.hour(NOW.replace(hour=hour) - back * DAY, q0=back, q1=10 * hour)
        self.hour(NOW - HOUR, q0=7)
        self.hour(NOW, ".jsonl.open", q0=100)

    def hour(self, at: datetime, suffix: str = ".jsonl", **published: int) -> None:
        """A feed file with what was published to queues, in two virtual hosts."""
        lines = [
            queue_line(name, vhost, publish=count)
            for name, count in published.items()
            for vhost in ("/", "shop")
        ]
        name = f"{at:%Y-%m-%dT%H}-{next(self._numbers)}{suffix}"
        (self.usage / name).write_text("".join(lines))

    def compute(self, now: datetime = NOW, name: str = "queue-usage", **given: str) -> Run:
        """Take in what is due and compute a report, as a job does."""
        chosen, canonical = parameters.read(REPORTS[name], given)
        run = self.runs.new(name, None, int(now.timestamp() * 1000), canonical)
        directory = self.runs.path(name, run.run_id)
        scratch = directory / "scratch"
        scratch.mkdir()
        order = Specification(
            report=name, parameters=canonical, run_id=run.run_id, run_directory=str(directory),
            usage_directory=str(self.usage), work_directory=str(self.usage.parent / "work"),
            keeping=KEEPING, launcher_directory="", java_home=None,
            spark_master="", options={}, reports_directory=str(self.runs.directory),
        )  # fmt: skip
        intake = Intake(self.usage, self.usage / "work", KEEPING, now)
        intake.finish(lambda: self.spark)
        outcome = Outcome()
        watch = Watch(lambda _: None)
        question = answering.Question(order, chosen, now)
        answering.compute(self.spark, question, intake, scratch, watch, outcome)
        run.state, run.rows_written = "done", outcome.rows_written
        self.runs.write(run)
        assert run.rows_written == len(self.rows(run))
        return run

    def rows(self, run: Run) -> list[Any]:
        """All rows of a result in their order."""
        view = parameters.read(REPORTS[run.report], run.parameters)[0].view
        return pages.Result(self.runs.result(run), view.columns).page(pages.Where(), 0, 10_000)

    def inodes(self, run: Run) -> dict[str, int]:
        """The file of each day of a result."""
        found = {}
        for path in self.runs.result(run):
            days = pyarrow.parquet.read_table(path, columns=["hour"])["hour"].to_pylist()
            assert len({f"{at:%Y-%m-%d}" for at in days}) == 1
            found[f"{days[0]:%Y-%m-%d}"] = path.stat().st_ino
        return found


@pytest.fixture
def appliance(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Appliance]:
    monkeypatch.setattr(pieces, "ROWS_MIN", 0)
    return lambda: Appliance(tmp_path, spark)


def as_a_whole(appliance: Appliance, run: Run, now: datetime, monkeypatch: Any) -> list[Any]:
    """The rows of the same question, computed without pieces."""
    with monkeypatch.context() as patch:
        patch.setattr(pieces, "ROWS_MIN", 1 << 60)
        whole = appliance.compute(now, run.report, **run.parameters)
    assert len(appliance.runs.result(whole)) == 1
    return appliance.rows(whole)


def test_an_hourly_run_computes_the_hours_of_today_and_takes_over_the_days_before(
    appliance: Callable[[], Appliance], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = appliance()
    first = data.compute()
    before = data.inodes(first)
    assert sorted(before) == [*FULL_DAYS, "2026-11-21"]
    assert data.rows(first)[0][3] == 100, "the hour under way is in it, and first"

    # An hour later: the open hour is closed, another one is under way.
    (open_file,) = data.usage.glob("*.open")
    open_file.rename(open_file.with_suffix(""))
    data.hour(NOW + HOUR, ".jsonl.open", q0=1000)
    second = data.compute(NOW + HOUR)
    after = data.inodes(second)
    assert {day: after[day] for day in FULL_DAYS} == {day: before[day] for day in FULL_DAYS}
    assert after["2026-11-21"] != before["2026-11-21"]
    assert data.rows(second) == as_a_whole(data, second, NOW + HOUR, monkeypatch)
    assert sum(row[3] for row in data.rows(second)) == 2 * (2 * 6 + 10 * 14 * 3 + 7 + 100 + 1000)


def test_a_day_that_changes_is_computed_anew_and_the_others_are_not(
    appliance: Callable[[], Appliance], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = appliance()
    before = data.inodes(data.compute())
    data.hour(NOW - 2 * DAY, q2=5)
    late = data.compute()
    after = data.inodes(late)
    assert [day for day in FULL_DAYS if after[day] != before[day]] == ["2026-11-19"]
    assert data.rows(late) == as_a_whole(data, late, NOW, monkeypatch)


def test_a_range_that_cuts_a_day_does_not_take_over_the_whole_of_it(
    appliance: Callable[[], Appliance], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = appliance()
    first = {"from": "2026-11-18T00:00", "to": "2026-11-20T00:00"}
    whole_days = data.compute(**first)
    assert len(data.rows(whole_days)) == 16
    for given in (
        {"from": "2026-11-18T12:00", "to": "2026-11-20T00:00"},
        {"from": "2026-11-18T00:00", "to": "2026-11-20T06:00"},
        {"from": "2026-11-18T00:00", "vhost": "shop"},
    ):
        run = data.compute(**given)
        assert data.rows(run) == as_a_whole(data, run, NOW, monkeypatch)
    # A range without any row is a result, too.
    assert data.rows(data.compute(**{"from": "2020-01-01", "to": "2020-01-02"})) == []


@pytest.mark.parametrize(("grain", "by"), [("day", "vhost"), ("month", "queue")])
def test_traffic_by_any_grain_and_subject_has_the_rows_of_a_whole_run(
    appliance: Callable[[], Appliance], monkeypatch: pytest.MonkeyPatch, grain: str, by: str
) -> None:
    data = appliance()
    given = {"grain": grain, "by": by, "from": "2025-01-01"}
    data.compute(name="traffic", **given)
    data.hour(NOW - 5 * DAY, q0=9)
    again = data.compute(NOW + HOUR, "traffic", **given)
    assert data.rows(again) == as_a_whole(data, again, NOW + HOUR, monkeypatch)


def test_a_file_system_without_hard_links_gets_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    (tmp_path / "old").write_bytes(b"rows")
    monkeypatch.setattr(os, "link", refuse)
    pieces._link(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == b"rows"
    assert (tmp_path / "new").stat().st_ino != (tmp_path / "old").stat().st_ino


def test_a_run_tells_of_its_own_stages_only(spark: SparkSession) -> None:
    spark.range(10).collect()
    before = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    assert from_tracker(spark.sparkContext, "computing").stages > 0
    assert from_tracker(spark.sparkContext, "computing", before).stages == 0
    spark.range(10).collect()
    assert from_tracker(spark.sparkContext, "computing", before).stages == 1


def test_when_a_run_is_over_all_its_stages_and_rows_are_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No look in between: a run may be shorter than the time between two of them.
    monkeypatch.setattr(progress, "INTERVAL", 3600)
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"number": list(range(1234))}), path)
    told: list[Progress] = []
    watch = Watch(told.append, "computing")
    watch.watch(spark, connect=False)
    assert spark.read.parquet(str(path)).filter("number >= 0").count() == 1234
    watch.settle()
    watch.close()
    assert told[-1].rows_read == 1234 and told[-1].stages == told[-1].stage > 0
    assert watch.stages == told[-1].stages


@pytest.mark.parametrize("report", [one for one in REPORTS.values() if one.by_time])
def test_reports_in_pieces_have_the_newest_rows_first(report: Any) -> None:
    for view in report.views:
        assert view.order[0] == f"-{view.time}"
    assert report.transform == "traffic"


def test_what_one_virtual_host_held_is_a_mean_over_the_time_that_the_whole_feed_covers(
    appliance: Callable[[], Appliance],
) -> None:
    data = appliance()
    for back in range(1, 4):
        at = NOW.replace(hour=5, minute=0) - back * DAY
        start = int(at.timestamp() * 1000)
        job = {"kind": "queue", "vhost": "jobs", "name": "q", "message_bytes_ms": 10**9}
        user = {"kind": "user", "vhost": "/", "user": "anna"}
        lines = [
            {"v": 2, **job, "since": start, "until": start + 100_000},
            {"v": 2, **user, "since": start, "until": start + 2_000_000},
        ]
        path = data.usage / f"{at:%Y-%m-%dT%H}-77.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path in (*data.usage.glob("*T01-*"), *data.usage.glob("*T13-*")):
        path.unlink()  # made-up lines of another time
    run = data.compute(name="growth", vhost="jobs", to="2026-11-21")
    ((vhost, queue, days, held, *_),) = data.rows(run)
    assert (vhost, queue, days, held) == ("jobs", "q", 3, 500)
