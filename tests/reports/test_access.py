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

from management.reports import client, pages
from management.reports.access import ReportAccess, described, described_run, where
from management.reports.catalog import QUEUE_USAGE
from management.reports.pages import Where
from management.reports.runs import Run, RunNotFound
from tests.reports.feeds import TEN

HOUR = datetime(2026, 11, 21, 10, tzinfo=UTC)
VHOSTS = ("/", "shop", "shop2")
ALL = Where()
VIEW = QUEUE_USAGE.view()


def table(rows: int = 3) -> pa.Table:
    """A result of some rows; queues are numbered, their vhosts take turns."""
    values: dict[str, list[Any]] = {column.name: [1] * rows for column in VIEW.columns}
    values |= {
        "hour": [HOUR] * rows,
        "vhost": [VHOSTS[number % 3] for number in range(rows)],
        "queue": [f"Queue-{number}" for number in range(rows)],
    }
    return pa.table(values)


@pytest.fixture
def access(tmp_path: Path) -> ReportAccess:
    """A access with one finished run; no reports process runs."""
    access = ReportAccess(tmp_path)
    run = access.runs.new("queue-usage", "anna", TEN)
    run.state, run.started_at, run.ended_at = "done", TEN + 5, TEN + 4005
    access.runs.write(run)
    directory = access.runs.path(run.report, run.run_id)
    (directory / "result").mkdir()
    pyarrow.parquet.write_table(table(), directory / "result" / "part-0.parquet")
    return access


def last(access: ReportAccess) -> Run:
    return access.find("queue-usage", "latest")


def file(access: ReportAccess, form: str, chosen: Where) -> bytes:
    return b"".join(access.file(last(access), form, chosen))


def test_it_gives_some_users_only_the_rows_of_their_virtual_hosts(access: ReportAccess) -> None:
    everyone, anna = where(VIEW, {}, None), where(VIEW, {}, {"shop", "gone"})
    assert json.loads(file(access, "json", everyone))["row_count"] == 3
    found = json.loads(file(access, "json", anna))
    assert found["rows"] == [["2026-11-21T10:00:00Z", "shop", "Queue-1", 1, 1, 1, 1, 1, 1, 1]]
    assert json.loads(file(access, "json", where(VIEW, {}, set())))["rows"] == []
    assert access.page(last(access), anna, 1, 100)["rows"] == found["rows"]
    assert access.result(last(access)).distinct("vhost", anna) == ["shop"]
    assert file(access, "csv", anna).count(b"\r\n") == 2
    parquet = pyarrow.parquet.read_table(io.BytesIO(file(access, "parquet", anna)))
    assert parquet["vhost"].to_pylist() == ["shop"]
    hidden = where(VIEW, {"vhost": "shop2"}, {"shop"})
    assert json.loads(file(access, "json", hidden))["rows"] == []
    with pytest.raises(RunNotFound, match="not as 'exe'"):
        file(access, "exe", ALL)


def test_it_reads_pages_over_several_files_and_row_groups(access: ReportAccess) -> None:
    directory = access.runs.result(last(access))[0].parent
    rows = table(1000)
    for number in range(4):
        part = rows.slice(number * 250, 250)
        pyarrow.parquet.write_table(part, directory / f"part-{number}.parquet", row_group_size=100)
    result = access.result(last(access))
    names = [row[2] for row in result.page(ALL, 0, 10_000)]
    assert names == [f"Queue-{number}" for number in range(1000)]
    assert [row[2] for row in result.page(ALL, 245, 10)] == names[245:255]
    assert result.page(ALL, 1000, 10) == []
    shop = where(VIEW, {"vhost": "shop", "q": "queue-9"}, None)
    matching = [name for index, name in enumerate(names) if index % 3 == 1 and "-9" in name]
    assert result.count(shop) == len(matching)
    pages = [access.page(last(access), shop, page, 7) for page in range(1, 8)]
    assert [row[2] for page in pages for row in page["rows"]] == matching
    assert pages[0]["page_count"] == -(-len(matching) // 7)
    assert result.sums("hour", ("messages_in",), shop) == {TEN: (len(matching),)}
    whole = pyarrow.parquet.read_table(io.BytesIO(file(access, "parquet", ALL)))
    assert whole["queue"].to_pylist() == names
    assert len(json.loads(file(access, "json", ALL))["rows"]) == 1000
    with pytest.raises(ValueError, match="page_size"):
        access.page(last(access), shop, 1, 10_001)


def numbered(access: ReportAccess) -> list[int]:
    """Writes a result of 1,000 rows in four files; what each queue took in, by its number."""
    directory = access.runs.result(last(access))[0].parent
    taken = [number * 37 % 500 for number in range(1000)]
    rows = table(1000)
    place = rows.column_names.index("messages_in")
    rows = rows.set_column(place, "messages_in", pa.array(taken))
    for number in range(4):
        part = rows.slice(number * 250, 250)
        pyarrow.parquet.write_table(part, directory / f"part-{number}.parquet", row_group_size=100)
    return taken


def test_it_sorts_by_any_column_over_files_and_pages(access: ReportAccess) -> None:
    taken = numbered(access)
    run = last(access)

    def names(query: dict[str, str], vhosts: set[str] | None = None) -> list[int]:
        chosen = access.chosen(run, query, vhosts)
        pages = [access.page(run, chosen, page, 300)["rows"] for page in range(1, 5)]
        return [int(row[2].removeprefix("Queue-")) for page in pages for row in page]

    falling = sorted(range(1000), key=lambda number: -taken[number])
    assert names({"sort": "-messages_in"}) == falling
    assert names({"sort": "messages_in", "sort_reverse": "true"}) == falling
    assert names({"sort": "messages_in"}) == sorted(range(1000), key=lambda number: taken[number])
    assert names({"sort": "queue"}) == sorted(range(1000), key=lambda number: f"Queue-{number}")
    shop = [number for number in falling if VHOSTS[number % 3] == "shop"]
    assert names({"sort": "-messages_in"}, {"shop"}) == shop
    chosen = access.chosen(run, {"sort": "-messages_in"}, None)
    lines = file(access, "csv", chosen).decode().splitlines()[1:]
    assert [line.split(",")[2] for line in lines] == [f"Queue-{number}" for number in falling]
    whole = pyarrow.parquet.read_table(io.BytesIO(file(access, "parquet", chosen)))
    assert whole["messages_in"].to_pylist() == sorted(taken, reverse=True)
    with pytest.raises(ValueError, match="sort is 'weight', not one of hour, vhost, queue"):
        access.chosen(run, {"sort": "weight"}, None)


def test_it_refuses_to_sort_more_rows_than_it_has_room_for(
    access: ReportAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered(access)
    monkeypatch.setattr(pages, "SORTED_MAX", 999)
    sorted_ = access.chosen(last(access), {"sort": "queue"}, None)
    with pytest.raises(ValueError, match="1,000 rows match, and no more than 999 are sorted"):
        access.page(last(access), sorted_, 1, 10)
    with pytest.raises(ValueError, match="no more than 999 are sorted"):
        access.file(last(access), "json", sorted_)
    assert len(access.page(last(access), ALL, 1, 10)["rows"]) == 10


def test_the_top_is_counted_within_what_a_user_may_see(access: ReportAccess) -> None:
    taken = numbered(access)
    run = last(access)

    def names(query: dict[str, str], vhosts: set[str] | None) -> set[int]:
        chosen = access.chosen(run, query, vhosts)
        rows = json.loads(file(access, "json", chosen))["rows"]
        return {int(row[2].removeprefix("Queue-")) for row in rows}

    best = sorted(range(1000), key=lambda number: (-taken[number], f"Queue-{number}"))
    shop = [number for number in best if VHOSTS[number % 3] == "shop"]
    assert names({"top": "7", "measure": "messages_in"}, {"shop"}) == set(shop[:7])
    assert sorted(taken[number] for number in names({"top": "4"}, None)) == [498, 498, 499, 499]
    by_vhost = names({"top": "3", "vhost": "/"}, None)
    assert by_vhost and all(number % 3 == 0 for number in by_vhost)
    for wrong in ("0", "many", "1001", "-1"):
        with pytest.raises(ValueError, match="not a number from 1 to 1000"):
            access.chosen(run, {"top": wrong}, None)
    with pytest.raises(ValueError, match="measure is 'queue', not one of messages_in"):
        access.chosen(run, {"top": "3", "measure": "queue"}, None)


def test_it_reads_results_and_refuses_runs_while_the_reports_process_is_away(
    access: ReportAccess,
) -> None:
    standing = access.standings()[0]
    assert (standing.next_at, standing.under_way) == (None, None)
    assert standing.last_done == last(access)
    assert described(standing, everything=True)["available"] is False
    with pytest.raises(client.ReportsUnavailable):
        access.run("queue-usage", "anna")


def test_it_does_not_show_a_run_as_under_way_that_nobody_works_on(access: ReportAccess) -> None:
    access.runs.new("queue-usage", None, TEN + 60_000)
    assert access.standing("queue-usage").under_way is None


def test_it_tells_how_long_a_run_took_and_hides_the_rest_from_some(access: ReportAccess) -> None:
    standing = access.standings()[0]
    everything = described(standing, everything=True)["last"]
    assert (everything["took_ms"], everything["asked_by"]) == (4000, "anna")
    less = described(standing, everything=False)["last"]
    assert less["took_ms"] == 4000
    assert not less.keys() & {"asked_by", "error", "spark", "rows_read", "rows_written"}


def test_it_finds_the_newest_result_of_the_same_question(access: ReportAccess) -> None:
    asked = {"from": "2026-11-01T00:00Z", "vhost": "shop2"}
    run = access.runs.new("queue-usage", None, TEN + 1000, asked)
    assert access.newest("queue-usage", {"from": "2026-11-01", "vhost": "shop2"}) is None
    run.state = "done"
    access.runs.write(run)
    assert access.newest("queue-usage", {"from": "2026-11-01", "vhost": "shop2"}) == run
    assert last(access) != run, "latest is of the default question"
    with pytest.raises(ValueError, match="not a date"):
        access.newest("queue-usage", {"from": "soon"})


def test_it_does_not_tell_of_a_virtual_host_that_a_user_may_not_see(access: ReportAccess) -> None:
    run = access.runs.new("queue-usage", "anna", TEN + 1000, {"vhost": "shop2"})
    assert described_run(run, everything=True)["parameters"] == {"vhost": "shop2"}
    assert described_run(run, everything=False)["parameters"] == {}
    old = last(access)
    old.parameters = {"vhost": "shop2"}
    assert b"shop2" not in b"".join(access.file(old, "json", where(VIEW, {}, {"shop"})))


def test_it_shows_the_end_of_a_log(access: ReportAccess) -> None:
    with pytest.raises(RunNotFound, match="has no log"):
        access.log(last(access))
    path = access.runs.path("queue-usage", last(access).run_id) / "log"
    path.write_bytes(b"x" * 300_000 + b"end \xff")
    text = access.log(last(access))
    assert len(text) == 256 * 1024 and text.endswith("end \ufffd")
