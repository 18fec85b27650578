"""What pages and API are told of reports, and whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from management.reports import client, results
from management.reports.catalog import QUEUE_USAGE
from management.reports.desk import Desk, described
from management.reports.runs import Run, RunNotFound
from tests.reports.feeds import TEN

ROWS = [
    ["2026-11-21T10:00:00Z", vhost, "q", 1, 10, 1, 10, 1, 0, 0] for vhost in ("/", "shop", "shop2")
]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk with one finished run; no reports process runs."""
    desk = Desk(tmp_path)
    run = desk.runs.new("queue-usage", "anna", TEN)
    run.state, run.started_at, run.ended_at = "done", TEN + 5, TEN + 4005
    desk.runs.write(run)
    directory = desk.runs.path(run.report, run.run_id)
    (directory / "result.json").write_bytes(
        results.as_json(QUEUE_USAGE, run.run_id, ROWS, truncated=False)
    )
    (directory / "result.csv").write_bytes(results.as_csv(QUEUE_USAGE.columns, ROWS))
    (directory / "result.parquet").write_bytes(b"PAR1")
    return desk


def last(desk: Desk) -> Run:
    return desk.find("queue-usage", "latest")


def test_it_gives_some_users_only_the_rows_of_their_virtual_hosts(desk: Desk) -> None:
    assert desk.table(last(desk), None)["row_count"] == 3
    table = desk.table(last(desk), {"shop", "gone"})
    assert (table["rows"], table["row_count"]) == ([ROWS[1]], 1)
    assert desk.table(last(desk), set())["rows"] == []
    assert desk.file(last(desk), "csv", {"shop"}).count(b"\r\n") == 2
    assert b"shop2" not in desk.file(last(desk), "json", {"shop"})
    assert desk.file(last(desk), "parquet", None) == b"PAR1"
    with pytest.raises(RunNotFound, match="holds all virtual hosts"):
        desk.file(last(desk), "parquet", {"shop"})


def test_it_reads_results_and_refuses_runs_while_the_reports_process_is_away(desk: Desk) -> None:
    (standing,) = desk.standings()
    assert (standing.next_at, standing.under_way) == (None, None)
    assert standing.last_done == last(desk)
    assert described(standing, everything=True)["available"] is False
    with pytest.raises(client.ReportsUnavailable):
        desk.run("queue-usage", "anna")


def test_it_does_not_show_a_run_as_under_way_that_nobody_works_on(desk: Desk) -> None:
    desk.runs.new("queue-usage", None, TEN + 60_000)
    assert desk.standing("queue-usage").under_way is None


def test_it_tells_how_long_a_run_took_and_hides_the_rest_from_some(desk: Desk) -> None:
    (standing,) = desk.standings()
    everything = described(standing, everything=True)["last"]
    assert (everything["took_ms"], everything["asked_by"]) == (4000, "anna")
    less = described(standing, everything=False)["last"]
    assert less["took_ms"] == 4000
    assert not less.keys() & {"asked_by", "error", "spark", "rows_read", "rows_written"}
