"""Closed months of the cost statement. A month that is here does not change any more.

`<data>/reports/months/2026-10/` holds `closed.json` (when, and by which tariff) and one Parquet
file for each view of the statement, with quantities and amounts (millionths of the currency).
`closed.json` comes last, and without it a month is not closed: whole or not at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from .placement import HERE, Bring, Placement, Step, Write
from .tariff import Tariff, month_of

FOLDER = "months"
RECORD = "closed.json"


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a closed month. `at`: when it was closed, UTC ms."""

    month: str
    at: int
    tariff: Tariff


class Ledger:
    """The closed months below the reports' directory. Files of a month that is being closed are
    written in `work` (where temporary files are, if it is left out) and go through `placement`.
    """

    def __init__(
        self, directory: Path, placement: Placement = HERE, work: Path | None = None
    ) -> None:
        self._directory = directory / FOLDER
        self._placement = placement
        self._work = work

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
        if (place / RECORD).exists():
            raise FileExistsError(f"the month {closed.month} is closed already")
        with tempfile.TemporaryDirectory(dir=self._work) as scratch:
            steps: list[Step] = []
            for view, table in tables.items():
                made = Path(scratch) / f"{view}.parquet"
                pyarrow.parquet.write_table(table, made, compression="zstd")
                steps.append(Bring(str(made), str(place / made.name)))
            record = msgspec.json.format(msgspec.json.encode(closed), indent=1)
            self._placement.carry([*steps, Write(str(place / RECORD), record)])

    def _names(self) -> list[str]:
        try:
            found = [path for path in self._directory.iterdir() if _is_month(path.name)]
        except FileNotFoundError:
            return []
        return sorted(path.name for path in found if (path / RECORD).exists())


def _is_month(name: str) -> bool:
    try:
        month_of(name)
    except ValueError:
        return False
    return True
