"""Writes a report's result as Parquet, sorted as it is shown, however many rows there are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
from pyspark.sql import functions as f

from .runs import RESULT
from .shapes import View

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Rows of one file, about; a page reads one row group, not a file.
ROWS_PER_FILE = 2_000_000
WRITE_OPTIONS = {"parquet.block.size": str(2 << 20), "parquet.writer.version": "PARQUET_2_0"}


def write(frame: DataFrame, view: View, directory: Path, scratch: Path, rows_in: int) -> int:
    """Compute the frame and write it as `result/` in `directory`, whole or not at all.

    `rows_in` is how many rows it is computed from. The files' names are in the order of their rows.
    Returns the number of rows. Raises OSError and Spark's errors.
    """
    files = -(-rows_in // ROWS_PER_FILE)
    chosen = frame.select(*view.names)
    if files > 1:
        chosen = chosen.repartitionByRange(files, *order(view))
    else:
        chosen = chosen.repartition(1)
    place = scratch / RESULT
    shutil.rmtree(place, ignore_errors=True)
    chosen.sortWithinPartitions(*order(view)).write.options(**WRITE_OPTIONS).parquet(
        f"file://{place}"
    )
    place.rename(directory / RESULT)
    parts = (directory / RESULT).glob("*.parquet")
    return sum(pyarrow.parquet.ParquetFile(part).metadata.num_rows for part in parts)


def order(view: View) -> list[Column]:
    """What the rows of a view are sorted by."""
    return [
        f.col(name[1:]).desc_nulls_last() if name.startswith("-") else f.col(name).asc()
        for name in view.order
    ]
