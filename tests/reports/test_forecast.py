"""The forecast of the pages growth and disk: a line from now on, a band around it, the room."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet

from frontend.views.report_forecast import HEIGHT, TOP_PAD, WIDTH, forecast
from management.reports.catalog import BACKLOG, DISK, GROWTH
from management.reports.pages import Result, Where
from management.reports.shapes import View

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
BOTTOM = TOP_PAD + HEIGHT


def result(tmp_path: Path, view: View, *rows: dict[str, Any]) -> Result:
    kinds = {"text": pa.string(), "number": pa.float64(), "time": pa.timestamp("us", "UTC")}
    schema = pa.schema([(one.name, kinds.get(one.kind, pa.int64())) for one in view.columns])
    path = tmp_path / "part-0.parquet"
    table = pa.Table.from_pylist([dict.fromkeys(view.names) | row for row in rows], schema)
    pyarrow.parquet.write_table(table, path)
    return Result((path,), view.columns)


def growing(name: str, held: int, growth: float, band: float) -> dict[str, Any]:
    expected = held + 30 * growth
    return {
        "vhost": "/", "queue": name, "held_bytes": held, "growth": growth,
        "growth_low": growth - band, "growth_high": growth + band, "expected": int(expected),
        "expected_low": int(expected - 40 * band), "expected_high": int(expected + 40 * band),
    }  # fmt: skip


def test_the_first_rows_of_the_table_are_lines_with_bands(tmp_path: Path) -> None:
    view = GROWTH.view()
    rows = [growing(f"q{number}", 1000 * number, 100 - 60 * number, 10) for number in range(5)]
    told = forecast(result(tmp_path, view, *rows), view, Where(), NOW_MS)
    assert told is not None and told["days"] == 30 and told["limit"] == ""
    assert [line["names"] for line in told["lines"]] == [["/", f"q{n}"] for n in range(3)]
    rising, _, falling = told["lines"]
    corners = [tuple(map(float, corner.split(","))) for corner in rising["band"].split()]
    assert [x for x, _ in corners] == [0, WIDTH, WIDTH]
    start, highest, lowest = (y for _, y in corners)
    assert highest < float(rising["to"]) < lowest < start == BOTTOM
    # 3,400 bytes, as the report says, of a scale that ends at 5 % more than the greatest of all.
    assert float(rising["to"]) == pytest.approx(BOTTOM - HEIGHT * 3000 / (3400 * 1.05), abs=0.1)
    assert float(falling["to"]) > float(falling["from"])
    by_name = Where(equals=(("queue", "q4"),))
    told = forecast(result(tmp_path, view, *rows), view, by_name, NOW_MS)
    assert told is not None and [line["names"][-1] for line in told["lines"]] == ["q4"]


def test_the_disk_has_a_limit_and_is_drawn_until_it_is_full(tmp_path: Path) -> None:
    view = DISK.view()
    row = growing("", 1000, 100, 20) | {
        "vhost": "", "free": 9000, "full_first": NOW + timedelta(days=75),
        "full_at": NOW + timedelta(days=90), "full_last": NOW + timedelta(days=112, hours=12),
    }  # fmt: skip
    whole = result(tmp_path, view, {name: row[name] for name in view.names if name in row})
    told = forecast(whole, view, Where(), NOW_MS)
    assert told is not None and told["days"] == 113
    assert told["lines"][0]["names"] == ["all queues"]
    assert float(told["lines"][0]["to"]) < float(told["limit"]) < BOTTOM
    assert forecast(whole, view, Where(vhosts=frozenset({"shop"})), NOW_MS) is None


def test_reports_without_a_forecast_have_none(tmp_path: Path) -> None:
    view = BACKLOG.view()
    assert forecast(result(tmp_path, view), view, Where(), NOW_MS) is None
    view = GROWTH.view()
    assert forecast(result(tmp_path, view), view, Where(), NOW_MS) is None
