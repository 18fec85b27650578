"""The usage tables on disk: which Parquet files hold the hours, days and months.

`<data>/usage/tables/manifest.json` names the files that count and the feed files that are in them.
Files are written elsewhere, brought into the tables (`placement`) under names that were never used,
and begin to count together, when the manifest is replaced by one rename. So a run that is killed at
any point has either happened or not, and doing it again neither loses nor doubles a line.

Files that no longer count are deleted by a later run, at least RETIRED_MS afterwards: a backup or a
reader may have read the manifest before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow.parquet

from .columns import MERGED, TABLES_VERSION
from .gaps import Gap
from .placement import HERE, Bring, Placement, Remove, Step, Write

Grain = Literal["hour", "day", "month"]
GRAINS: tuple[Grain, ...] = ("hour", "day", "month")

# How much of a file's `period` says which day, month or year of rows it is a part of.
PERIOD_LENGTH: dict[Grain, int] = {"hour": 10, "day": 7, "month": 4}

MANIFEST = "manifest.json"
RETIRED_MS = 10 * 60_000

_FILE = re.compile(r"[0-9T-]{4,40}\.\d{1,12}\.parquet")


class TablesNewer(Exception):
    """The tables were written by a newer program; the text says so."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file that counts. `period` is what it holds: a UTC day of hours (`2026-11-21`) or
    one source's hour of it (`2026-11-21T10-1795255260000`), a month of days (`2026-11`), a year of
    months (`2026`). Numbers that are not in `columns` are zero in all of its rows.
    """

    grain: Grain
    period: str
    name: str
    rows: int
    bytes: int
    columns: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"{self.grain}/{self.name}"


class Consumed(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a feed file whose lines are in the tables."""

    lines: int
    unreadable: int


class Manifest(msgspec.Struct, kw_only=True):
    """What counts, and when the feed could not count. `retired` names paths that no longer do, with
    the UTC millisecond since.
    """

    version: int = TABLES_VERSION
    generation: int = 0
    files: list[File] = []
    consumed: dict[str, Consumed] = {}
    gaps: list[Gap] = []
    retired: dict[str, int] = {}


@dataclass(frozen=True)
class Written:
    """A finished file outside of the tables, to be brought in."""

    grain: Grain
    period: str
    path: Path


class Tables:
    """The tables under `directory`. One job at a time changes them, through `placement`."""

    def __init__(self, directory: Path, placement: Placement = HERE) -> None:
        self.directory = directory
        self.placement = placement
        self.manifest = self._load()

    def files(
        self, grain: Grain, first: datetime | None = None, end: datetime | None = None
    ) -> list[File]:
        """The files of a grain that may hold rows from `first` on and before `end`."""
        length = PERIOD_LENGTH[grain]
        low = f"{first.astimezone(UTC):%Y-%m-%d}"[:length] if first else ""
        high = f"{end.astimezone(UTC):%Y-%m-%d}"[:length] if end else "9999"
        return sorted(
            (
                file
                for file in self.manifest.files
                if file.grain == grain and low <= file.period[:length] <= high
            ),
            key=lambda file: file.period,
        )

    def months(self) -> list[datetime]:
        """The months that the tables have rows of, oldest first."""
        found: set[datetime] = set()
        for path in self.paths(self.files("month")):
            at = pyarrow.parquet.read_table(path, columns=["at"])["at"]
            found.update(moment.astimezone(UTC) for moment in at.unique().to_pylist())
        return sorted(found)

    def paths(self, files: Iterable[File]) -> list[Path]:
        return [self.directory / file.path for file in files]

    def gaps(self, first_ms: int, end_ms: int) -> list[Gap]:
        """The gaps that reach into an interval, in UTC milliseconds."""
        return [gap for gap in self.manifest.gaps if gap.until > first_ms and gap.since < end_ms]

    def publish(
        self,
        written: Collection[Written],
        *,
        dropped: Collection[File] = (),
        consumed: dict[str, Consumed] | None = None,
        gaps: Collection[Gap] = (),
        now_ms: int,
    ) -> None:
        """Let written files count, in place of those of the same grain and period and of
        `dropped`, and the consumed feed files with them: all or nothing. Raises OSError.
        """
        old = self.manifest
        generation = old.generation + 1
        new = [_described(one, generation) for one in written]
        steps: list[Step] = [
            Bring(str(one.path), str(self.directory / file.path))
            for one, file in zip(written, new, strict=True)
        ]
        gone = {file.path for file in dropped}
        gone |= {
            file.path
            for file in old.files
            if any((file.grain, file.period) == (one.grain, one.period) for one in new)
        }
        kept = [file for file in old.files if file.path not in gone]
        manifest = Manifest(
            generation=generation,
            files=sorted([*kept, *new], key=lambda file: (file.grain, file.period)),
            consumed=old.consumed | (consumed or {}),
            gaps=sorted({*old.gaps, *gaps}),
            retired=old.retired | dict.fromkeys(gone, now_ms),
        )
        self._store(manifest, steps)

    def clean(self, present: Collection[str], now_ms: int) -> None:
        """Delete files that have not counted for a while, and what a killed run left behind; forget
        the feed files that are not `present` any more. Raises OSError.
        """
        counting = {file.path for file in self.manifest.files}
        gone: list[Step] = []
        for grain in GRAINS:
            for path in self._listed(grain):
                name = f"{grain}/{path.name}"
                retired = self.manifest.retired.get(name, 0)
                if name not in counting and now_ms - retired >= RETIRED_MS:
                    gone.append(Remove(str(path)))
        self.placement.carry(gone)
        left = {
            name: at
            for name, at in self.manifest.retired.items()
            if (self.directory / name).exists()
        }
        consumed = {name: note for name, note in self.manifest.consumed.items() if name in present}
        if (left, consumed) != (self.manifest.retired, self.manifest.consumed):
            self.manifest.retired, self.manifest.consumed = left, consumed
            self._store(self.manifest)

    def expired(self, first: dict[Grain, str]) -> list[File]:
        """The files of each grain whose period is before the first one that is kept."""
        return [file for file in self.manifest.files if file.period < first[file.grain]]

    @property
    def is_current(self) -> bool:
        """Whether the tables have the columns of this program."""
        return self.manifest.version == TABLES_VERSION

    def _listed(self, grain: Grain) -> list[Path]:
        try:
            found = list((self.directory / grain).iterdir())
        except FileNotFoundError:
            return []
        return [path for path in found if _FILE.fullmatch(path.name)]

    def _load(self) -> Manifest:
        try:
            data = (self.directory / MANIFEST).read_bytes()
        except FileNotFoundError:
            return Manifest()
        manifest = msgspec.json.decode(data, type=Manifest)
        if manifest.version > TABLES_VERSION:
            raise TablesNewer(
                f"{self.directory / MANIFEST} is of version {manifest.version}, this program knows"
                f" {TABLES_VERSION}: start the newer program, or move the directory away"
            )
        return manifest

    def _store(self, manifest: Manifest, before: Collection[Step] = ()) -> None:
        new = Write(str(self.directory / MANIFEST), msgspec.json.encode(manifest))
        self.placement.carry([*before, new])
        self.manifest = manifest


def _described(one: Written, generation: int) -> File:
    metadata = pyarrow.parquet.read_metadata(one.path)
    return File(
        grain=one.grain,
        period=one.period,
        name=f"{one.period}.{generation}.parquet",
        rows=metadata.num_rows,
        bytes=one.path.stat().st_size,
        columns=tuple(column for column in metadata.schema.names if column in MERGED),
    )
