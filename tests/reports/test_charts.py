"""What the charts of a report's page add up, and for whom."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet

from frontend.views.report_charts import LETTER, charts, stacked
from management.reports import charted
from management.reports.catalog import COST, QUEUE_USAGE, REPORTS
from management.reports.charted import Stack, Total
from management.reports.pages import Result, Where
from management.reports.shapes import Report, View

VIEW = QUEUE_USAGE.view()
# A Saturday.
START = datetime(2026, 11, 21, tzinfo=UTC)
HOURS, QUEUES = 72, 20


def taken_in(hour: int, queue: int) -> int:
    return (queue + 1) * (1 + hour % 24)


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """Three days of hours of twenty queues in two virtual hosts, in two files of many groups."""
    rows: list[dict[str, Any]] = [
        dict.fromkeys(VIEW.names, 0)
        | {"hour": START + timedelta(hours=hour), "vhost": ("/", "shop")[queue % 2],
           "queue": f"q{queue:02}", "messages_in": taken_in(hour, queue)}
        for hour in range(HOURS) for queue in range(QUEUES)
    ]  # fmt: skip
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        table = pa.Table.from_pylist(part)
        pyarrow.parquet.write_table(table, tmp_path / f"part-{number}.parquet", row_group_size=97)
    return Result(tuple(sorted(tmp_path.glob("*.parquet"))), VIEW.columns)


def total(queue: int) -> int:
    return sum(taken_in(hour, queue) for hour in range(HOURS))


def test_the_greatest_come_first_and_the_others_are_one(result: Result) -> None:
    by = charted.measure(VIEW)
    assert by is not None and by.name == "messages_in"
    told = charted.totals(result, VIEW, by, Where())
    assert told[:2] == [Total(("shop", "q19"), total(19)), Total(("/", "q18"), total(18))]
    assert len(told) == charted.TOP + 1
    assert told[-1] == Total((), sum(total(queue) for queue in range(10)), 10)


def test_charts_follow_rights_and_filters(result: Result) -> None:
    by = VIEW.columns[3]
    shop = charted.totals(result, VIEW, by, Where(frozenset({"shop"})))
    assert {one.keys[0] for one in shop} == {"shop"} and len(shop) == 10
    assert charted.totals(result, VIEW, by, Where(frozenset())) == []
    one = charted.totals(result, VIEW, by, Where(holds=(("queue", "Q07"),)))
    assert one == [Total(("shop", "q07"), total(7))]


def test_stacks_hold_everything_once_by_days_where_hours_are_too_many(result: Result) -> None:
    by = VIEW.columns[3]
    told = charted.totals(result, VIEW, by, Where())[: charted.STACKED]
    stacks = charted.stacks(result, VIEW, by, Where(), told)
    assert [one.at for one in stacks] == [START + timedelta(days=day) for day in range(3)]
    day = sum(1 + hour for hour in range(24))
    assert stacks[0].values[:2] == (20 * day, 19 * day)
    everything = sum(total(queue) for queue in range(QUEUES))
    assert sum(sum(one.values) for one in stacks) == everything


@pytest.mark.parametrize("hours", [1, 5, 24, 40, 72])
@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta(days=1)])
def test_texts_of_axes_stand_beside_each_other_and_inside(hours: int, step: timedelta) -> None:
    stacks = [Stack(START + step * number, (12_345_679,)) for number in range(hours)]
    money = next(column for column in COST.view().columns if column.kind == "money")
    drawn = stacked(stacks, money, others=False)
    assert drawn["left"] > LETTER * max(len(text) for _, text in drawn["lines"])
    assert drawn["whole"] >= drawn["left"] + drawn["width"]
    ends = -float(drawn["left"])
    for x, text in drawn["labels"]:
        half = LETTER * len(text) / 2
        assert float(x) - half >= ends - 0.1, "it begins behind the end of the one before"
        ends = float(x) + half
    assert drawn["labels"]
    assert ends <= drawn["whole"] - drawn["left"] + 0.1


def test_the_week_has_the_mean_of_each_hour(result: Result) -> None:
    hours = charted.week(result, VIEW, VIEW.columns[3], Where())
    all_queues = sum(queue + 1 for queue in range(QUEUES))
    assert hours[5 * 24 + 3] == hours[6 * 24 + 3] == hours[3] == 4 * all_queues
    assert hours[24:120] == [None] * 96, "Tuesday to Friday were not counted"


def test_an_hour_of_the_week_in_which_an_object_did_nothing_counts_for_its_mean(
    tmp_path: Path,
) -> None:
    """A queue that is busy on one Monday of four, beside one that is always busy."""
    monday = datetime(2026, 11, 2, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        dict.fromkeys(VIEW.names, 0)
        | {"hour": monday + timedelta(hours=hour), "vhost": "/", "queue": name, "messages_in": 8}
        for name, hours in (("seldom", (168 + 9,)), ("always", range(4 * 168 - 24)))
        for hour in hours
    ]
    path = tmp_path / "part-0.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    whole = Result((path,), VIEW.columns)
    seldom = charted.week(whole, VIEW, VIEW.columns[3], Where(holds=(("queue", "seldom"),)))
    assert (seldom[9], sum(value or 0 for value in seldom)) == (2, 2)
    always = charted.week(whole, VIEW, VIEW.columns[3], Where(holds=(("queue", "always"),)))
    assert set(always) == {8}


def test_a_report_is_charted_by_what_it_is_sorted_by() -> None:
    found = {report.name: charted.measure(report.view()) for report in REPORTS.values()}
    names = {name: column.name for name, column in found.items() if column}
    assert (names["cost"], names["refused"], names["backlog"]) == ("cost", "failed", "held")
    assert names["growth"] == names["disk"] == "held_bytes", "days are no sum"
    wanted = charted.measure(COST.view(), "cost_storage")
    assert wanted is not None and wanted.name == "cost_storage"
    assert charted.measure(COST.view(), "vhost") == charted.measure(COST.view())


@pytest.mark.parametrize(
    ("report", "view"),
    [(report, view) for report in REPORTS.values() for view in report.views],
    ids=lambda one: one.name,
)
def test_a_result_without_rows_has_charts_pages_and_files_without_rows(
    report: Report, view: View, tmp_path: Path
) -> None:
    # Spark writes it as a file without a row group.
    types = {"text": pa.string(), "time": pa.timestamp("us", "UTC"), "number": pa.float64()}
    schema = pa.schema([(one.name, types.get(one.kind, pa.int64())) for one in view.columns])
    pyarrow.parquet.ParquetWriter(tmp_path / "part-0.parquet", schema).close()
    result = Result((tmp_path / "part-0.parquet",), view.columns)
    somebody = Where(vhosts=frozenset({"shop"}))
    assert charts(report, result, view, somebody, "") == {}
    by = charted.measure(view)
    if by is not None:
        assert charted.greatest(result, view, by, Where(), 5).objects == ()
        assert not view.time or charted.stacks(result, view, by, Where(), []) == []
        assert not view.time or set(charted.week(result, view, by, Where())) == {None}
    ordered = Where(order=f"-{view.names[-1]}")
    result.check_order(ordered)
    assert result.page(ordered, 0, 10) == result.page(somebody, 0, 10) == []
    assert json.loads(b"".join(result.as_json(ordered, {})))["rows"] == []
    assert b"".join(result.as_csv(ordered)).count(b"\r\n") == 1
    parquet = b"".join(result.as_parquet(ordered))
    assert pyarrow.parquet.read_table(io.BytesIO(parquet)).num_rows == 0
