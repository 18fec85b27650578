"""Takes closed hours of the feed into the usage tables: one step, all or nothing.

Reading feed files needs no Spark; it is done in a thread while Spark starts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from . import bronze
from .bronze import Census, Source
from .gaps import Gap
from .keeping import Keeping
from .placement import HERE, Placement, Remove
from .tables import Consumed, File, Tables, Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Feed files taken in at a time: what a run that is killed has to do again.
SOURCES_MAX = 200


@dataclass
class Taken:
    """Hours read from the feed and not yet in the tables, as files of rows."""

    hours: list[tuple[Source, Path]] = field(default_factory=list)
    consumed: dict[str, Consumed] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    census: Census = Census()


class Intake:
    """The feed in `usage` and the tables made of it, which are changed through `placement`; `work`
    is a directory that is emptied, and that Spark sees too.
    """

    def __init__(
        self, usage: Path, work: Path, keeping: Keeping, now: datetime, placement: Placement = HERE
    ) -> None:
        self._usage = usage
        self._work = work
        self._keeping = keeping
        self._now = now.astimezone(UTC)
        self._now_ms = int(now.timestamp() * 1000)
        self.tables = Tables(usage / "tables", placement)
        self._reader = ThreadPoolExecutor(1)
        self._next: Future[Taken] | None = None

    def begin(self) -> None:
        """Delete what is too old and begin to read closed hours, in a thread."""
        shutil.rmtree(self._work, ignore_errors=True)
        self._clean()
        self._next = self._reader.submit(self._take)

    def waiting(self) -> int:
        """How many closed feed files are not in the tables."""
        return len(self._waiting())

    def finish(self, spark: Callable[[], SparkSession]) -> tuple[int, Census]:
        """Take in all closed hours: how many feed files, and what they held.

        `spark` is asked for a session only if there is work for it. Raises OSError, FoldFailed
        and Spark's errors; the hours that were taken in before stay so.
        """
        from . import folding

        if self._next is None:
            self.begin()
        assert self._next is not None
        done, census = 0, Census()
        tables = self.tables
        if not tables.is_current and tables.files("hour"):
            written = folding.rebuild(spark(), tables, self._work)
            tables.publish(written, now_ms=self._now_ms)
        while (taken := self._next.result()).consumed:
            today = self._now.date()
            hours = [(source.hour, path) for source, path in taken.hours]
            written = folding.fold_in(spark(), tables, hours, today, self._work) if hours else []
            written += [
                Written("hour", source.name, path)
                for source, path in taken.hours
                if source.hour.date() >= today
            ]
            tables.publish(
                [one for one in written if one.grain != "hour" or one.period >= self._first_day()],
                dropped=self._outdated(written),
                consumed=taken.consumed,
                gaps=taken.gaps,
                now_ms=self._now_ms,
            )
            done, census = done + len(taken.consumed), census + taken.census
            self._next = self._reader.submit(self._take)
        return done, census

    def open_hour(self) -> tuple[list[Path], Census, list[Gap]]:
        """What the broker has written and the tables do not hold, which is the hour under way:
        files of rows, what they were made of, gaps.
        """
        place = self._emptied("open")
        paths: list[Path] = []
        gaps: list[Gap] = []
        census = Census()
        # In this order: a file whose hour ends meanwhile is seen twice, not never.
        found = {source.name: source for source in bronze.open_sources(self._usage, place)}
        found |= {source.name: source for source in self._waiting()}
        for source in found.values():
            if source.name in self.tables.manifest.consumed:
                continue
            hour = bronze.hour_of(source)
            census += hour.census
            gaps += hour.gaps
            paths.append(place / f"{source.name}.parquet")
            bronze.write(hour.rows, paths[-1])
        return paths, census, gaps

    def _waiting(self) -> list[Source]:
        consumed = self.tables.manifest.consumed
        return [one for one in bronze.closed_sources(self._usage) if one.name not in consumed]

    def _take(self) -> Taken:
        """Read some of the waiting feed files. One with lines of a newer version is left alone: a
        newer program wrote it and may come back.
        """
        taken = Taken()
        place = self._emptied("taken")
        for source in self._waiting():
            if len(taken.consumed) == SOURCES_MAX:
                break
            hour = bronze.hour_of(source)
            census = hour.census
            if census.newer:
                continue
            note = Consumed(lines=census.lines, unreadable=census.unreadable)
            taken.consumed[source.name] = note
            taken.census += census
            taken.gaps += hour.gaps
            if len(hour.rows):
                path = place / f"{source.name}.parquet"
                bronze.write(hour.rows, path)
                taken.hours.append((source, path))
        return taken

    def _outdated(self, written: list[Written]) -> list[File]:
        """Hours of past days that now lie in one file a day, and what is not kept any longer."""
        whole = {one.period for one in written if one.grain == "hour" and len(one.period) == 10}
        folded = [
            file
            for file in self.tables.files("hour")
            if len(file.period) > 10 and file.period[:10] in whole
        ]
        everything = self._now - timedelta(seconds=self._keeping.everything)
        return folded + self.tables.expired(
            {"hour": self._first_day(), "day": f"{everything:%Y-%m}", "month": f"{everything:%Y}"}
        )

    def _first_day(self) -> str:
        """The first day whose hours are kept; the days before it are."""
        hours, everything = self._keeping.hours, self._keeping.everything
        return f"{self._now - timedelta(seconds=min(hours, everything)):%Y-%m-%d}"

    def _clean(self) -> None:
        """Delete feed files that have been in the tables for long enough, and those of a time that
        is not kept: where no run succeeds they would fill the disk.
        """
        hour = timedelta(hours=1)
        oldest = self._now - timedelta(seconds=self._keeping.lines) - hour
        everything = self._now - timedelta(seconds=self._keeping.everything) - hour
        consumed = self.tables.manifest.consumed
        gone = [
            Remove(str(source.path))
            for source in bronze.closed_sources(self._usage)
            if source.hour < everything
            or (source.name in consumed and (source.path.is_dir() or source.hour < oldest))
        ]
        self.tables.placement.carry(gone)
        present = {source.name for source in bronze.closed_sources(self._usage)}
        self.tables.clean(present, self._now_ms)

    def _emptied(self, name: str) -> Path:
        place = self._work / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place
