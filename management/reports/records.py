"""The records of runs as the reports process writes them: a disk without room does not end it.

What cannot be written is kept in memory, told to the web process with the status, and written as
soon as there is room. Runs that are over are brought into their place (`placement`) by a thread,
one after another; while the broker is away they stay where they were computed, and are read there.
"""

from __future__ import annotations

import errno
import logging
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from .runs import Run, Runs

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_TEXT = "No space left on device"

# Readers of a run that was brought may have its files open where it was computed.
LEFT_SECONDS = 30.0


class Records:
    """Writes records of `runs`; `unwritten` are those that the disk does not have as they are."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._unwritten: dict[str, Run] = {}
        self._carrier = ThreadPoolExecutor(1, "records")
        self._is_waiting = False
        self._tidying: Future[None] | None = None

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

    def bring(self, run: Run) -> Future[None]:
        """Have the files of a run that is over brought into their place, and old ones removed."""
        return self._carrier.submit(self._bring, run)

    def add(self, run: Run) -> Future[bool]:
        """Have the record of a run that is over written anew, wherever it is by then."""
        return self._carrier.submit(self.write, run)

    def tidy(self) -> None:
        """Have runs brought that could not be, and what is left of brought ones removed."""
        if self._tidying is None or self._tidying.done():
            self._tidying = self._carrier.submit(self._tidy)

    def close(self, seconds: float) -> None:
        """Wait a moment for what is being brought; the next start does the rest."""
        last = self._carrier.submit(lambda: None)
        self._carrier.shutdown(wait=False, cancel_futures=False)
        try:
            last.result(seconds)
        except TimeoutError:
            log.info("the last runs are brought into their place at the next start")

    def _bring(self, run: Run) -> None:
        try:
            self._runs.bring(run.report, run.run_id)
            self._runs.forget_old(run.report)
        except OSError as error:
            if not self._is_waiting:
                log.error(
                    "run %s of %s stays where it was computed, and is brought into its place "
                    "later: %s", run.run_id, run.report, plain(error, self._runs.directory),
                )  # fmt: skip
            self._is_waiting = True
            return
        self._is_waiting = False

    def _tidy(self) -> None:
        now_ms = time.time() * 1000
        for run in self._runs.left():
            is_due = run.is_over and now_ms - (run.ended_at or 0) >= LEFT_SECONDS * 1000
            if is_due and not self._runs.clean(run):
                self._bring(run)

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
