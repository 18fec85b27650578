"""Closed months of the cost statement. A month that is here does not change any more.

`<data>/reports/months/2026-10/` holds `closed.json` (when, and by which tariff) and one Parquet
file for each view of the statement, with quantities and amounts (millionths of the currency). It is
written under another name, synced, and renamed: a month is closed whole or not at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from .tariff import Tariff, month_of

FOLDER = "months"
RECORD = "closed.json"


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a closed month. `at`: when it was closed, UTC ms."""

    month: str
    at: int
    tariff: Tariff


class Ledger:
    """The closed months below the reports' directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / FOLDER

    def months(self) -> list[Closed]:
        """All closed months, oldest first. Raises ValueError for a damaged record."""
        found = []
        for name in self._names():
            try:
                data = (self._directory / name / RECORD).read_bytes()
                found.append(msgspec.json.decode(data, type=Closed))
            except (OSError, msgspec.MsgspecError) as error:
                raise ValueError(
                    f"the closed month {self._directory / name} cannot be read: {error}; put it "
                    "back from a backup"
                ) from None
        return found

    def newest(self) -> str:
        """The newest closed month, or an empty text."""
        return max(self._names(), default="")

    def paths(self, view: str, first: datetime, end: datetime | None) -> list[Path]:
        """The files of a view for the closed months of a range."""
        return [
            self._directory / name / f"{view}.parquet"
            for name in self._names()
            if month_of(name) >= first and (end is None or month_of(name) < end)
        ]

    def close(self, closed: Closed, tables: Mapping[str, Any]) -> None:
        """Close a month with an Arrow table for each view. Raises OSError; FileExistsError if it is
        closed already.
        """
        import pyarrow.parquet

        place = self._directory / closed.month
        part = self._directory / f".{closed.month}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for view, table in tables.items():
            pyarrow.parquet.write_table(table, part / f"{view}.parquet", compression="zstd")
        (part / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(closed), indent=1))
        _sync(part.iterdir())
        _sync([part])
        if place.exists():
            raise FileExistsError(f"the month {closed.month} is closed already")
        part.rename(place)
        _sync([self._directory])

    def _names(self) -> list[str]:
        try:
            names = [path.name for path in self._directory.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if _is_month(name))


def _is_month(name: str) -> bool:
    try:
        month_of(name)
    except ValueError:
        return False
    return True


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
