"""Results of every report in every view, with long names and numbers, without a run of Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from management.reports.catalog import REPORTS
from management.reports.gaps import Gap
from management.reports.measures import Column
from management.reports.runs import RESULT, Runs
from management.reports.shapes import Report, View

ROWS = 20
TEXTS = {
    "vhost": "production",
    "queue": "orders.eu-central.invoices.paid",
    "exchange": "orders.eu-central.events",
    "user": "invoice-service",
    "connection": "invoice-worker-eu-central-17",
    "product": "Pika Python Client Library",
    "reason": "the queue is full",
}
NUMBERS: dict[str, Any] = {
    "count": 99_912_345,
    "bytes": 987_654_321_012,
    "ms": 7_512_345,
    "number": 12_345.6,
    "money": 123_456_789_012,
}
TYPES = {"text": pa.string(), "number": pa.float64()}


def write(data_dir: Path) -> list[tuple[str, dict[str, str], int]]:
    """Puts results below a data directory; the reports' names, the queries of their views, and how
    many columns they have."""
    runs = Runs(data_dir / "reports")
    return [
        (name, _write(runs, report, view), len(view.columns))
        for name, report in REPORTS.items()
        for view in report.views
    ]


def _write(runs: Runs, report: Report, view: View) -> dict[str, str]:
    now = int(time.time() * 1000)
    query = {} if view is report.views[0] else {"by": view.name}
    run = runs.new(report.name, "guest", now, query)
    place = runs.path(report.name, run.run_id) / RESULT
    place.mkdir()
    columns = {column.name: _values(column, now) for column in view.columns}
    pyarrow.parquet.write_table(pa.table(columns), place / "part-0.parquet")
    run.state, run.started_at, run.ended_at = "done", now, now + 4_200
    run.gaps = [Gap(now - 7_200_000, now - 7_150_000, "unclean")]
    run.rows_read, run.rows_unreadable, run.rows_written = 123_456, 0, ROWS
    runs.write(run)
    return query


def _values(column: Column, now: int) -> pa.Array:
    if column.kind == "time":
        hours = [now - now % 3_600_000 - place * 3_600_000 for place in range(ROWS)]
        return pa.array(hours, pa.timestamp("ms", "UTC"))
    if column.kind == "text":
        text = TEXTS.get(column.name, column.title)
        return pa.array([text] * ROWS)
    value = NUMBERS[column.kind]
    return pa.array([value] * ROWS, TYPES.get(column.kind, pa.int64()))
