"""What is kept of runs, when they are due, and how their results are spelled."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from management.reports import results, runs, schedule
from management.reports.catalog import QUEUE_USAGE, Column
from management.reports.runs import RunNotFound, Runs
from tests.reports.feeds import TEN


@pytest.mark.parametrize(
    ("cron", "minutes"), [("5 * * * *", 5), ("0 11 * * *", 60), ("0 10 * * *", 24 * 60)]
)
def test_it_knows_when_a_report_is_due_next(cron: str, minutes: int) -> None:
    assert schedule.next_at_ms(cron, TEN) == TEN + minutes * 60_000


def test_it_keeps_the_newest_runs_and_the_last_result(tmp_path: Path) -> None:
    kept = Runs(tmp_path)
    first = kept.new("queue-usage", "anna", TEN)
    first.state = "done"
    kept.write(first)
    for number in range(1, runs.RUNS_KEPT + 5):
        run = kept.new("queue-usage", None, TEN + number * 1000)
        run.state = "failed"
        kept.write(run)
    kept.forget_old("queue-usage")
    left = kept.all("queue-usage")
    assert len(left) == runs.RUNS_KEPT + 1
    assert left[0].asked_at == TEN + (runs.RUNS_KEPT + 4) * 1000
    assert kept.last_done("queue-usage") == first


@pytest.mark.parametrize(
    "run_id", ["..", "", "20261121T100000Z-aaaaaa/..", "20261121T100000Z-AAAA"]
)
def test_it_takes_no_odd_name_for_a_path(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(RunNotFound):
        Runs(tmp_path).read("queue-usage", run_id)
    with pytest.raises(RunNotFound):
        Runs(tmp_path).read(run_id, "20261121T100000Z-aaaaaa")


def test_it_gives_no_file_but_results(tmp_path: Path) -> None:
    kept = Runs(tmp_path)
    run = kept.new("queue-usage", None, TEN)
    (kept.path("queue-usage", run.run_id) / "result.csv").write_text("a\r\n")
    assert kept.result(run, "csv").read_text() == "a\n"
    for form in ("json", "../log", "exe"):
        with pytest.raises(RunNotFound):
            kept.result(run, form)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_it_takes_the_sting_out_of_cells_that_a_spreadsheet_would_run(start: str) -> None:
    columns = (Column("name", "text", "Name"), Column("n", "count", "N"))
    text = results.as_csv(columns, [[start + "1", -5], ['a "b", c\nd', 0]]).decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["name", "n"],
        ["'" + start + "1", "-5"],
        ['a "b", c\nd', "0"],
    ]


def test_it_describes_the_columns_of_a_result(tmp_path: Path) -> None:
    kept = Runs(tmp_path)
    run = kept.new("queue-usage", None, TEN)
    path = kept.path("queue-usage", run.run_id) / "result.json"
    path.write_bytes(results.as_json(QUEUE_USAGE, run.run_id, [], truncated=False))
    table = kept.result_table(run)
    assert (table["report"], table["run_id"], table["rows"]) == ("queue-usage", run.run_id, [])
    assert table["columns"][0] == {"name": "hour", "kind": "time", "title": "Hour"}
