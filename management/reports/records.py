"""The records of runs as the reports process writes them: a disk without room does not end it.

What cannot be written is kept in memory, told to the web process with the status, and written as
soon as there is room.
"""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path

from .runs import Run, Runs

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_TEXT = "No space left on device"


class Records:
    """Writes records of `runs`; `unwritten` are those that the disk does not have as they are."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._unwritten: dict[str, Run] = {}

    @property
    def unwritten(self) -> list[Run]:
        return list(self._unwritten.values())

    def write(self, run: Run, *, sync: bool = True) -> bool:
        """Whether the disk has the record now."""
        try:
            self._runs.write(run, sync=sync)
        except OSError as error:
            if not self._unwritten:
                log.error(
                    "records of runs are kept in memory: %s",
                    plain(error, self._runs.directory),
                )
            self._unwritten[run.run_id] = run
            return False
        self._unwritten.pop(run.run_id, None)
        return True

    def write_again(self) -> None:
        """Try what could not be written."""
        for run in self.unwritten:
            if not self.write(run):
                return
            if not self._unwritten:
                log.info("the records of all runs are written")


def plain(error: BaseException, place: Path) -> str:
    """An error as a person reads it; `place` lies on the disk that may be full."""
    if not is_full(error):
        return str(error)
    try:
        free = f"{shutil.disk_usage(place).free // 1_000_000} MB are free"
    except OSError:
        free = "how much is free is unknown"
    return (
        f"the disk of {place} is full ({free}): make room and run it again; usage that is not in "
        "the tables yet stays in the feed, nothing is lost"
    )


def is_full(error: BaseException) -> bool:
    """Whether a full disk or quota is the reason, also where Java says so."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in FULL:
            return True
        if FULL_TEXT in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
