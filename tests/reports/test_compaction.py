"""The feed as Spark reads it: open, closed and compacted, and compaction cut off anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.testing import assertDataFrameEqual

from management.reports import feed_input
from management.reports.feed_input import CompactionFailed, FeedInput
from tests.reports.feeds import queue_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
START = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def usage(tmp_path: Path) -> Path:
    """Two closed hours, one of them with a torn line in it, and an open one with a torn end."""
    directory = tmp_path / "odd [name] {*}"
    directory.mkdir()
    (directory / "2026-11-21T08-1.jsonl").write_text(
        "".join(queue_line(f"q{number}", publish=1) for number in range(100))
    )
    (directory / "2026-11-21T09-2.jsonl").write_text(
        queue_line("q0", publish=5) + '{"v":1,"ki\n' + "\n" + queue_line("q1", publish=6)
    )
    (directory / "2026-11-21T10-3.jsonl.open").write_text(
        queue_line("q0", publish=7) + '{"v":1,"kind":"queue","na'
    )
    return directory


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "scratch"
    directory.mkdir()
    yield directory


def test_it_reads_the_same_before_and_after_compaction(
    spark: SparkSession, usage: Path, scratch: Path
) -> None:
    feed = FeedInput(spark, usage)
    before, census = feed.read(START, scratch)
    rows = before.collect()
    assert (census.lines, census.unreadable) == (104, 1)
    assert len(rows) == 103
    assert sum(row["publish"] for row in rows) == 100 + 5 + 6 + 7
    assert {(row["hour"], row["begun"]) for row in rows} == {(8, 1), (9, 2), (10, 3)}

    files, compacted = feed.compact()
    assert (files, compacted.lines, compacted.unreadable) == (2, 103, 1)
    assert [path.name for path in usage.glob("*.jsonl*")] == ["2026-11-21T10-3.jsonl.open"]
    after, census = feed.read(START, scratch)
    assert census.lines == 103
    assertDataFrameEqual(after, spark.createDataFrame(rows, before.schema))
    assert feed.compact() == (0, feed_input.Census())


def test_it_reads_on_from_the_hour_it_is_asked_for(
    spark: SparkSession, usage: Path, scratch: Path
) -> None:
    feed = FeedInput(spark, usage)
    nine = START.replace(hour=9, minute=59)
    before, _ = feed.read(nine, scratch)
    assert sum(row["publish"] for row in before.collect()) == 5 + 6 + 7
    feed.compact()
    after, _ = feed.read(nine, scratch)
    assert sum(row["publish"] for row in after.collect()) == 5 + 6 + 7


@pytest.mark.parametrize("place", ["before the first commit", "after a rename", "after a delete"])
def test_it_neither_loses_nor_doubles_a_line_when_compaction_is_cut_off(
    spark: SparkSession,
    usage: Path,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    feed = FeedInput(spark, usage)

    class PowerCut(Exception):
        pass

    def cut(*_: object) -> None:
        raise PowerCut

    if place == "before the first commit":
        monkeypatch.setattr(FeedInput, "_commit", cut)
    elif place == "after a rename":
        monkeypatch.setattr(Path, "unlink", cut)
    else:
        committed = FeedInput._commit

        def commit_one(self: FeedInput, path: Path, *rest: object) -> None:
            committed(self, path, *rest)  # type: ignore[arg-type]
            raise PowerCut

        monkeypatch.setattr(FeedInput, "_commit", commit_one)
    with pytest.raises(PowerCut):
        feed.compact()
    monkeypatch.undo()

    lines, _ = feed.read(START, scratch)
    assert sum(row["publish"] for row in lines.collect()) == 118
    feed.compact()
    lines, _ = feed.read(START, scratch)
    assert sum(row["publish"] for row in lines.collect()) == 118
    assert len(list(usage.glob("*.jsonl"))) == 0
    assert not (usage / "compacted" / "_staging").exists()


def test_it_deletes_no_file_that_spark_did_not_write(
    spark: SparkSession, usage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = FeedInput(spark, usage)
    commit = FeedInput._commit

    def lose(self: FeedInput, path: Path, census: feed_input.Census, staging: Path) -> None:
        commit(self, path, census, staging / "gone")

    monkeypatch.setattr(FeedInput, "_commit", lose)
    with pytest.raises(CompactionFailed, match="2026-11-21T08-1"):
        feed.compact()
    assert len(list(usage.glob("*.jsonl"))) == 2


def test_it_compacts_files_that_hold_nothing_readable(spark: SparkSession, usage: Path) -> None:
    (usage / "2026-11-21T06-9.jsonl").write_text("")
    (usage / "2026-11-21T07-9.jsonl").write_text('{"v":1,"k')
    files, census = FeedInput(spark, usage).compact()
    assert (files, census.unreadable) == (4, 2)
    assert list(usage.glob("*.jsonl")) == []


def test_it_leaves_files_of_a_newer_version_alone(spark: SparkSession, usage: Path) -> None:
    newer = usage / "2026-11-21T07-9.jsonl"
    newer.write_text(queue_line("q0", publish=1) + '{"v":2,"kind":"tenant"}\n')
    assert FeedInput(spark, usage).compact()[0] == 2
    assert list(usage.glob("*.jsonl")) == [newer]


def test_it_reads_nothing_from_a_directory_that_is_not_there(
    spark: SparkSession, tmp_path: Path, scratch: Path
) -> None:
    feed = FeedInput(spark, tmp_path / "usage")
    assert feed.compact()[0] == 0
    lines, census = feed.read(START, scratch)
    assert (lines.count(), census.lines) == (0, 0)


def test_it_forgets_days_that_are_too_old(spark: SparkSession, usage: Path) -> None:
    feed = FeedInput(spark, usage)
    feed.compact()
    (usage / "compacted" / "date=2026-11-20" / "hour=1").mkdir(parents=True)
    feed.forget_before(NOW)
    assert [path.name for path in (usage / "compacted").iterdir()] == ["date=2026-11-21"]
