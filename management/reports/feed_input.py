"""The usage feed as Spark reads it, and its compaction.

The broker writes one JSONL file an hour into `<data>/usage` and renames it when the hour is over
(`docs/formats/usage.md`). Compaction turns each renamed file into one Parquet directory,
`compacted/date=D/hour=H/begun=M`, and deletes the file. The directory's appearance, by one rename,
is the commit: a file whose directory exists is already compacted, whatever else happened. So
compaction can be cut off anywhere, and done twice, and neither loses nor doubles a line.

One job at a time works on a feed; the reports process sees to that.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from . import schemas, transforms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_NAME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d{1,15})\.jsonl")
OPEN_SUFFIX = ".open"
STAGING = "_staging"  # Spark overlooks names that begin so


class CompactionFailed(Exception):
    """Spark did not write what it was given to write; nothing was deleted."""


@dataclass(frozen=True)
class Census:
    """How many lines there are, how many of them are left out, how many are of a newer version."""

    lines: int = 0
    unreadable: int = 0
    newer: int = 0

    def __add__(self, other: Census) -> Census:
        return Census(
            self.lines + other.lines, self.unreadable + other.unreadable, self.newer + other.newer
        )


class FeedInput:
    """The feed in `directory`, an absolute path that Spark's executors see too."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self._compacted = directory / "compacted"

    def closed_files(self) -> list[Path]:
        """The files of closed hours that are not compacted yet, oldest first."""
        return [path for path in self._files() if not self._leaf(path).exists()]

    def compact(self) -> tuple[int, Census]:
        """Turn the files of closed hours into Parquet: the number of files done, what they held.

        A file with lines of a newer version than this program knows is left as it is. Raises
        CompactionFailed, OSError and Spark's errors; what is done by then stays done.
        """
        staging = self._compacted / STAGING
        shutil.rmtree(staging, ignore_errors=True)
        for path in self._files():
            if self._leaf(path).exists():
                path.unlink()
        counted = self.census(self.closed_files())
        files = [path for path, census in counted.items() if not census.newer]
        if not files:
            return 0, Census()
        partitions = [f.col(name) for name in schemas.PARTITIONS]
        (
            transforms.readable(self.read_lines(files))
            .repartition(*partitions)
            .sortWithinPartitions("kind", "vhost", "name", "since")
            .write.partitionBy(*schemas.PARTITIONS)
            .parquet(f"file://{staging}")  # a path to write to is no pattern
        )
        for path in files:
            self._commit(path, counted[path], staging)
        shutil.rmtree(staging, ignore_errors=True)
        return len(files), sum((counted[path] for path in files), Census())

    def _commit(self, path: Path, census: Census, staging: Path) -> None:
        leaf = self._leaf(path)
        written = staging / leaf.relative_to(self._compacted)
        if census.lines == census.unreadable:
            written.mkdir(parents=True, exist_ok=True)  # nothing to write: an empty one is right
        if not written.is_dir():
            raise CompactionFailed(f"Spark wrote nothing for {path}, which has lines to compact")
        for part in (*written.iterdir(), written):
            _sync(part)
        leaf.parent.mkdir(parents=True, exist_ok=True)
        written.rename(leaf)
        for parent in (leaf.parent, leaf.parent.parent, self._compacted):
            _sync(parent)
        path.unlink()

    def read(self, first: datetime, scratch: Path) -> tuple[DataFrame, Census]:
        """All lines from the UTC hour of `first` on (schemas.FEED), and what was counted of them.

        Includes what the broker has written of the hour under way: its file is copied into
        `scratch` up to its last whole line, because it grows and is renamed while Spark reads.
        """
        first = first.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        first_hour = f.to_timestamp(f.lit(first.strftime("%Y-%m-%d %H:%M:%S")))
        # In this order: a file that is renamed meanwhile is seen twice, not never.
        copies = self._copies_of_open_files(scratch)
        newest = {path.name: path for path in [*copies, *self.closed_files()]}.values()
        wanted = f"{first:%Y-%m-%dT%H}"
        files = [path for path in newest if path.name[: len(wanted)] >= wanted]
        feed = transforms.since(self._read_compacted(first), first_hour)
        census = sum(self.census(files).values(), Census(lines=feed.count()))
        if files:
            feed = feed.unionByName(transforms.readable(self.read_lines(files)))
        return feed, census

    def read_lines(self, files: list[Path]) -> DataFrame:
        """Feed files as they are (schemas.JSON_LINE and the partition columns)."""
        lines = (
            self._spark.read.schema(schemas.JSON_LINE)
            .option("mode", "PERMISSIVE")
            .option("columnNameOfCorruptRecord", schemas.UNREADABLE)
            .json([_uri(path) for path in files])
        )
        return transforms.with_file(lines, f.col("_metadata.file_name"))

    def census(self, files: list[Path]) -> dict[Path, Census]:
        """Count the lines of feed files, one by one."""
        if not files:
            return {}
        counted = {
            (f"{row['date']}", row["hour"], row["begun"]): row
            for row in transforms.census(self.read_lines(files)).collect()
        }
        censuses = {}
        for path in files:
            row = counted.get(_key(path))
            censuses[path] = (
                Census(row["lines"], row["unreadable"], row["newer"]) if row else Census()
            )
        return censuses

    def forget_before(self, oldest: datetime) -> None:
        """Delete compacted days that lie wholly before `oldest`."""
        day = f"date={oldest.astimezone(UTC):%Y-%m-%d}"
        for path in self._compacted.glob("date=????-??-??"):
            if path.name < day:
                shutil.rmtree(path, ignore_errors=True)

    def _files(self) -> list[Path]:
        try:
            return sorted(p for p in self._directory.iterdir() if FILE_NAME.fullmatch(p.name))
        except FileNotFoundError:
            return []

    def _leaf(self, path: Path) -> Path:
        date, hour, begun = _key(path)
        return self._compacted / f"date={date}/hour={hour}/begun={begun}"

    def _read_compacted(self, first: datetime) -> DataFrame:
        """Only the days that are wanted are listed, so that old ones cost nothing."""
        day = first.date()
        last = datetime.now(UTC).date() + timedelta(days=2)
        days = []
        while day < last:
            path = self._compacted / f"date={day}"
            if path.is_dir():
                days.append(_uri(path))
            day += timedelta(days=1)
        if not days:
            return self._spark.createDataFrame([], schemas.FEED)
        return (
            self._spark.read.schema(schemas.FEED)
            .option("basePath", f"file://{self._compacted}")  # taken literally
            .parquet(*days)
            .select(*schemas.FEED.fieldNames())
        )

    def _copies_of_open_files(self, scratch: Path) -> list[Path]:
        copies = []
        for path in sorted(self._directory.glob(f"*.jsonl{OPEN_SUFFIX}")):
            name = path.name.removesuffix(OPEN_SUFFIX)
            if FILE_NAME.fullmatch(name) is None:
                continue
            copy = scratch / name
            try:
                shutil.copyfile(path, copy)
            except FileNotFoundError:
                # Its hour ended since we looked; the next run reads it under its new name.
                continue
            _cut_to_whole_lines(copy)
            copies.append(copy)
        return copies


def _key(path: Path) -> tuple[str, int, int]:
    """A feed file's partition: its date, hour and the millisecond it was begun."""
    match = FILE_NAME.fullmatch(path.name)
    assert match is not None, path
    return match[1], int(match[2]), int(match[3])


def _cut_to_whole_lines(path: Path, block: int = 1 << 16) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - block)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _uri(path: Path) -> str:
    """A path to read as Spark takes it: on a file system, and no pattern whatever its name."""
    return "file://" + re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path))
