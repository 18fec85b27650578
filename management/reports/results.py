"""Writes a report's result: small files that browsers, spreadsheets and other programs read."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .catalog import RESULT_ROWS_MAX, Column, Report
from .runs import replace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A spreadsheet takes a text cell that begins so for a formula. Names come from clients.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write(frame: DataFrame, report: Report, run_id: str, directory: Path) -> int:
    """Collect the frame and write `result.json`, `result.csv` and `result.parquet`, each whole.

    The frame must begin with a column of time and is cut to its newest RESULT_ROWS_MAX rows.
    Returns the number of rows written. Raises OSError and Spark's errors.
    """
    import pyarrow as pa
    import pyarrow.parquet

    names = [column.name for column in report.columns]
    newest_first = frame.select(*names).orderBy(frame[names[0]].desc(), *names[1:])
    table = newest_first.limit(RESULT_ROWS_MAX + 1).toArrow()
    truncated = table.num_rows > RESULT_ROWS_MAX
    table = table.slice(0, RESULT_ROWS_MAX).sort_by([(name, "ascending") for name in names[:3]])
    rows = [list(row.values()) for row in table.to_pylist()]
    for row in rows:
        for index, value in enumerate(row):
            if isinstance(value, datetime):
                row[index] = value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, compression="zstd")
    replace(directory / "result.parquet", sink.getvalue().to_pybytes())
    replace(directory / "result.csv", as_csv(report.columns, rows))
    replace(directory / "result.json", as_json(report, run_id, rows, truncated))
    return len(rows)


def as_json(report: Report, run_id: str, rows: list[list[Any]], truncated: bool) -> bytes:
    """The result as one JSON object: columns described once, rows as arrays in their order."""
    return msgspec.json.encode(
        {
            "report": report.name,
            "run_id": run_id,
            "columns": [
                {"name": column.name, "kind": column.kind, "title": column.title}
                for column in report.columns
            ],
            "row_count": len(rows),
            "truncated": truncated,
            "rows": rows,
        }
    )


def as_csv(columns: tuple[Column, ...], rows: list[list[Any]]) -> bytes:
    """The result as CSV (RFC 4180, UTF-8). A text that a spreadsheet would run gets a quote."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([column.name for column in columns])
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return value
