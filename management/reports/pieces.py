"""Results in pieces: what one table period makes of a result is computed once.

In a report that is `by_time` each row is computed from the usage of its own hour, day or month
alone, and the newest rows come first. So its result has a file for each period of the tables (a day
of hours, a month of days, a year of months), and a file that an earlier run made of the same table
files is taken over by a hard link. An hourly run over a month of hours computes the hours of today
and of the first day, which the range cuts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet

from . import folding, results
from .parameters import Chosen
from .runs import RESULT
from .tables import PERIOD_LENGTH, File

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A result of fewer rows is one file: reading its pages costs less, and so does computing it.
ROWS_MIN = 100_000

# To be raised when the same rows of the tables would make other rows of a result.
VERSION = 1

# Stands in a file's name where rows of the hour under way are in it: nothing is taken over of it.
RECENT = "recent"


class PieceUnknown(Exception):
    """Spark wrote rows of a time that was not asked for."""


@dataclass(frozen=True)
class Piece:
    """One period's part of a result. `digest` is of everything that its rows depend on, `files`
    the table files they are computed of.
    """

    period: str
    digest: str
    files: tuple[File, ...]

    def name(self, index: int) -> str:
        """Its file's name as the `index`-th piece: the names of a result are in its rows' order."""
        return f"{index:05d}-{self.digest}.parquet"


def fits(chosen: Chosen, rows: int) -> bool:
    """Whether a result of `rows` table rows is made of pieces."""
    return chosen.report.by_time and rows >= ROWS_MIN


def plan(
    chosen: Chosen,
    files: Collection[File],
    recent: Collection[Path],
    first: datetime,
    end: datetime | None,
) -> list[Piece]:
    """The pieces of a result, newest first. `recent` are files of rows of hours that the tables do
    not hold yet; their names begin with the hour.
    """
    length = PERIOD_LENGTH[chosen.grain]
    current = {path.name[:length] for path in recent}
    found: dict[str, list[File]] = {period: [] for period in current}
    for file in files:
        found.setdefault(file.period[:length], []).append(file)
    cuts = [f"{moment:%Y-%m-%dT%H}" for moment in (first, end) if moment is not None]
    question = (str(VERSION), chosen.report.name, repr(chosen.view), chosen.grain, chosen.vhost)
    pieces = []
    for period in sorted(found, reverse=True):
        own = tuple(sorted(found[period], key=lambda file: file.name))
        depends = (*question, *(cut for cut in cuts if cut.startswith(period)))
        text = "\0".join((*depends, *(file.name for file in own)))
        digest = hashlib.sha256(text.encode()).hexdigest()[:24]
        pieces.append(Piece(period, RECENT if period in current else digest, own))
    return pieces


def known(pieces: Collection[Piece], earlier: Sequence[Path]) -> dict[str, Path]:
    """Files of an earlier result that are pieces of this one, by the piece's period."""
    digests = {path.stem[6:]: path for path in earlier}
    return {
        piece.period: digests[piece.digest]
        for piece in pieces
        if piece.digest != RECENT and piece.digest in digests
    }


def write(
    frame: DataFrame,
    chosen: Chosen,
    pieces: Sequence[Piece],
    taken: dict[str, Path],
    directory: Path,
    scratch: Path,
) -> int:
    """Write a result as `result/` in `directory`, whole or not at all: `taken` pieces as they are,
    the others from the rows of `frame`, which holds theirs only. Returns the number of rows.

    Raises OSError, PieceUnknown and Spark's errors.
    """
    view = chosen.view
    place, written = scratch / RESULT, scratch / "pieces"
    for path in (place, written):
        shutil.rmtree(path, ignore_errors=True)
    place.mkdir()
    placed = folding.placed(frame.select(*view.names), chosen.grain, view.time)
    made = folding.write_places(placed, results.order(view), written, results.WRITE_OPTIONS)
    files = {one.period: one.path for one in made}
    for index, piece in enumerate(pieces):
        name = place / piece.name(index)
        if piece.period in taken:
            _link(taken[piece.period], name)
        elif piece.period in files:
            files.pop(piece.period).rename(name)
    if files:
        raise PieceUnknown(f"Spark wrote rows of {', '.join(sorted(files))}, not asked for")
    parts = list(place.iterdir())
    if not parts:  # a result without rows is a file without rows
        return results.write(frame, view, directory, scratch, 0)
    place.rename(directory / RESULT)
    return sum(
        pyarrow.parquet.read_metadata(directory / RESULT / part.name).num_rows for part in parts
    )


def _link(old: Path, new: Path) -> None:
    """The same file under another name, or a copy where the file system has no hard links."""
    try:
        os.link(old, new)
    except OSError:
        shutil.copyfile(old, new)
