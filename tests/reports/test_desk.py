"""What pages and API are told of reports, and whom."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("pyarrow")

from management.reports import client
from management.reports.catalog import QUEUE_USAGE
from management.reports.desk import Desk, described, where
from management.reports.pages import Where
from management.reports.runs import Run, RunNotFound
from tests.reports.feeds import TEN

HOUR = datetime(2026, 11, 21, 10, tzinfo=UTC)
VHOSTS = ("/", "shop", "shop2")
ALL = Where()


def table(rows: int = 3) -> pa.Table:
    """A result of some rows; queues are numbered, their vhosts take turns."""
    values: dict[str, list[Any]] = {column.name: [1] * rows for column in QUEUE_USAGE.columns}
    values |= {
        "hour": [HOUR] * rows,
        "vhost": [VHOSTS[number % 3] for number in range(rows)],
        "queue": [f"Queue-{number}" for number in range(rows)],
    }
    return pa.table(values)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk with one finished run; no reports process runs."""
    desk = Desk(tmp_path)
    run = desk.runs.new("queue-usage", "anna", TEN)
    run.state, run.started_at, run.ended_at = "done", TEN + 5, TEN + 4005
    desk.runs.write(run)
    directory = desk.runs.path(run.report, run.run_id)
    (directory / "result").mkdir()
    pyarrow.parquet.write_table(table(), directory / "result" / "part-0.parquet")
    return desk


def last(desk: Desk) -> Run:
    return desk.find("queue-usage", "latest")


def file(desk: Desk, form: str, chosen: Where) -> bytes:
    return b"".join(desk.file(last(desk), form, chosen))


def test_it_gives_some_users_only_the_rows_of_their_virtual_hosts(desk: Desk) -> None:
    everyone, anna = where(QUEUE_USAGE, {}, None), where(QUEUE_USAGE, {}, {"shop", "gone"})
    assert json.loads(file(desk, "json", everyone))["row_count"] == 3
    found = json.loads(file(desk, "json", anna))
    assert found["rows"] == [["2026-11-21T10:00:00Z", "shop", "Queue-1", 1, 1, 1, 1, 1, 1, 1]]
    assert json.loads(file(desk, "json", where(QUEUE_USAGE, {}, set())))["rows"] == []
    assert desk.page(last(desk), anna, 1, 100)["rows"] == found["rows"]
    assert desk.result(last(desk)).distinct("vhost", anna) == ["shop"]
    assert file(desk, "csv", anna).count(b"\r\n") == 2
    parquet = pyarrow.parquet.read_table(io.BytesIO(file(desk, "parquet", anna)))
    assert parquet["vhost"].to_pylist() == ["shop"]
    hidden = where(QUEUE_USAGE, {"vhost": "shop2"}, {"shop"})
    assert json.loads(file(desk, "json", hidden))["rows"] == []
    with pytest.raises(RunNotFound, match="not as 'exe'"):
        file(desk, "exe", ALL)


def test_it_reads_pages_over_several_files_and_row_groups(desk: Desk) -> None:
    directory = desk.runs.result(last(desk))[0].parent
    rows = table(1000)
    for number in range(4):
        part = rows.slice(number * 250, 250)
        pyarrow.parquet.write_table(part, directory / f"part-{number}.parquet", row_group_size=100)
    result = desk.result(last(desk))
    names = [row[2] for row in result.page(ALL, 0, 10_000)]
    assert names == [f"Queue-{number}" for number in range(1000)]
    assert [row[2] for row in result.page(ALL, 245, 10)] == names[245:255]
    assert result.page(ALL, 1000, 10) == []
    shop = where(QUEUE_USAGE, {"vhost": "shop", "q": "queue-9"}, None)
    matching = [name for index, name in enumerate(names) if index % 3 == 1 and "-9" in name]
    assert result.count(shop) == len(matching)
    pages = [desk.page(last(desk), shop, page, 7) for page in range(1, 8)]
    assert [row[2] for page in pages for row in page["rows"]] == matching
    assert pages[0]["page_count"] == -(-len(matching) // 7)
    assert result.sums("hour", ("messages_in",), shop) == {TEN: (len(matching),)}
    whole = pyarrow.parquet.read_table(io.BytesIO(file(desk, "parquet", ALL)))
    assert whole["queue"].to_pylist() == names
    assert len(json.loads(file(desk, "json", ALL))["rows"]) == 1000
    with pytest.raises(ValueError, match="page_size"):
        desk.page(last(desk), shop, 1, 10_001)


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
