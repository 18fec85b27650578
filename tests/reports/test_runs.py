"""What is kept of runs, when they are due, and how their results are spelled."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from management.reports import pages, runs, schedule
from management.reports.runs import RunNotFound, Runs
from tests.reports.feeds import TEN


@pytest.mark.parametrize(
    ("cron", "minutes"), [("5 * * * *", 5), ("0 11 * * *", 60), ("0 10 * * *", 24 * 60)]
)
def test_it_knows_when_a_report_is_due_next(cron: str, minutes: int) -> None:
    assert schedule.next_at_ms(cron, TEN) == TEN + minutes * 60_000


def test_it_keeps_the_newest_runs_and_the_last_result(tmp_path: Path) -> None:
    kept = Runs(tmp_path / "reports")
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


def test_a_run_whose_record_is_being_written_is_not_taken_for_an_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, replace = Runs(tmp_path / "reports"), runs.replace

    def beside(path: Path, data: bytes, *, sync: bool = True) -> None:
        kept.forget_old("queue-usage")
        replace(path, data, sync=sync)

    for _ in range(runs.RUNS_KEPT):
        run = kept.new("queue-usage", None, TEN + 1000)
        run.state = "failed"
        kept.write(run)
    monkeypatch.setattr(runs, "replace", beside)
    # Ids of one second are in no order, so that the newest may stand among the oldest.
    run = kept.new("queue-usage", "anna", TEN)
    assert kept.read("queue-usage", run.run_id) == run


@pytest.mark.parametrize(
    "run_id", ["..", "", "20261121T100000Z-aaaaaa/..", "20261121T100000Z-AAAA"]
)
def test_it_takes_no_odd_name_for_a_path(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(RunNotFound):
        Runs(tmp_path / "reports").read("queue-usage", run_id)
    with pytest.raises(RunNotFound):
        Runs(tmp_path / "reports").read(run_id, "20261121T100000Z-aaaaaa")


def test_it_gives_no_file_but_results(tmp_path: Path) -> None:
    kept = Runs(tmp_path / "reports")
    run = kept.new("queue-usage", None, TEN)
    with pytest.raises(RunNotFound, match="has no result"):
        kept.result(run)
    directory = kept.path("queue-usage", run.run_id)
    (directory / "result.parquet").write_bytes(b"PAR1")  # of an earlier version
    assert kept.result(run) == (directory / "result.parquet",)
    (directory / "result").mkdir()
    for name in ("part-1.parquet", "part-0.parquet", "_SUCCESS"):
        (directory / "result" / name).write_bytes(b"PAR1")
    assert [path.name for path in kept.result(run)] == ["part-0.parquet", "part-1.parquet"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_it_takes_the_sting_out_of_cells_that_a_spreadsheet_would_run(start: str) -> None:
    text = pages.csv_rows([["name", "n"], [start + "1", -5], ['a "b", c\nd', 0]]).decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["name", "n"],
        ["'" + start + "1", "-5"],
        ['a "b", c\nd', "0"],
    ]
