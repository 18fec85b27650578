"""A disk that is really full in the middle of a run: nothing half written counts, nothing is lost.

The reason of a failure comes from Java here, or from Arrow, in whatever words they have for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as f

from management.reports import results
from management.reports.catalog import QUEUE_USAGE
from management.reports.job import _in_short
from management.reports.tables import Tables
from tests.disks import SmallDisk
from tests.reports.feeds import queue_line
from tests.reports.test_intake import Runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 100_000
VIEW = QUEUE_USAGE.view()


def incompressible(spark: SparkSession) -> DataFrame:
    """A result of about 4 MB."""
    texts = {"vhost": f.lit("/"), "queue": f.expr("uuid()"), "hour": f.current_timestamp()}
    columns = [texts.get(name, f.col("id")).alias(name) for name in VIEW.names]
    return spark.range(ROWS).select(*columns)


def test_a_result_without_room_is_not_there_and_the_next_one_is_whole(
    spark: SparkSession, small_disk: SmallDisk
) -> None:
    directory, scratch = small_disk.path / "run", small_disk.path / "scratch"
    directory.mkdir()
    scratch.mkdir()
    small_disk.fill(leave=1 << 20)
    with pytest.raises(Exception) as failure:
        results.write(incompressible(spark), VIEW, directory, scratch, ROWS)
    told = _in_short(failure.value, small_disk.path)
    assert told.startswith(f"the disk of {small_disk.path} is full")
    assert list(directory.iterdir()) == []
    small_disk.clear()
    assert results.write(incompressible(spark), VIEW, directory, scratch, ROWS) == ROWS
    assert [path.name for path in directory.iterdir()] == ["result"]


def test_hours_that_the_tables_have_no_room_for_stay_in_the_feed(
    spark: SparkSession, small_disk: SmallDisk
) -> None:
    usage: Path = small_disk.path / "usage"
    usage.mkdir()
    runs = Runs(spark, usage)
    (usage / "2026-11-21T08-1.jsonl").write_text(queue_line("q0", publish=1000))
    assert runs.run()[0] == 1
    (usage / "2026-11-21T09-2.jsonl").write_text(
        "".join(queue_line(f"q{number}", publish=1) for number in range(2000))
    )
    before = Tables(usage / "tables").manifest
    small_disk.fill()
    with pytest.raises(Exception) as failure:
        runs.run()
    assert "is full" in _in_short(failure.value, usage)
    assert Tables(usage / "tables").manifest == before
    assert (usage / "2026-11-21T09-2.jsonl").exists()
    small_disk.clear()
    assert runs.run()[0] == 1
    for grain in ("hour", "day", "month"):
        assert runs.published(grain) == 3000
