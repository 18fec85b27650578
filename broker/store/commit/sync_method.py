"""How a round is synced: each file by fdatasync, several at a time, or the whole file system by one
syncfs.

Which is faster depends on the disk, on how many files a round touched, and on what other programs
write on the same file system, for which a syncfs waits too. So both are measured as they are used.
"""

from __future__ import annotations

EACH, ALL = "fdatasync", "syncfs"
MEASURED = "measured"
START_ALL_FROM = 4
"""From this number of files on, one syncfs is used until there are measurements."""
TRY_EVERY = 64
"""Rounds after which the method that looks slower is tried again."""
WEIGHT = 0.1
"""Of a new measurement in the moving average."""


class SyncMethod:
    """Chooses for each round, and keeps count. `setting`: MEASURED, or the method to use for every
    round."""

    def __init__(self, setting: str = MEASURED) -> None:
        self.setting = setting
        self.rounds = {EACH: 0, ALL: 0}
        self.seconds_per_file: float | None = None
        """Moving average of fdatasync rounds, by file."""
        self.seconds_per_syncfs: float | None = None
        self._untried = 0

    def choose(self, files: int) -> str:
        """The method for a round that has to sync `files` files and directories."""
        if self.setting != MEASURED:
            return self.setting
        if files <= 1:
            # A single file never waits for what others write.
            return EACH
        if self.seconds_per_file is None or self.seconds_per_syncfs is None:
            if self._untried:
                # One of each, so that both are known.
                return EACH if self.seconds_per_file is None else ALL
            return ALL if files >= START_ALL_FROM else EACH
        best = self.better(files)
        self._untried += 1
        if self._untried >= TRY_EVERY:
            self._untried = 0
            return EACH if best == ALL else ALL
        return best

    def better(self, files: int) -> str:
        """What the measurements say for this number of files."""
        if self.seconds_per_file is None or self.seconds_per_syncfs is None:
            return ALL if files >= START_ALL_FROM else EACH
        return ALL if self.seconds_per_syncfs < self.seconds_per_file * files else EACH

    def took(self, method: str, files: int, seconds: float) -> None:
        """A round with this method ended."""
        self.rounds[method] += 1
        if files <= 1:
            return
        if self.seconds_per_file is None or self.seconds_per_syncfs is None:
            self._untried = 1
        if method == ALL:
            self.seconds_per_syncfs = _average(self.seconds_per_syncfs, seconds)
        else:
            self.seconds_per_file = _average(self.seconds_per_file, seconds / files)

    @property
    def crossover(self) -> int | None:
        """From how many files on one syncfs is faster; None while one of the two was not needed."""
        if not self.seconds_per_file or self.seconds_per_syncfs is None:
            return None
        return max(2, int(self.seconds_per_syncfs / self.seconds_per_file) + 1)


def _average(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
