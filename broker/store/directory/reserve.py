"""The reserve: a file whose space is given back when the disk is full.

The first write that finds the disk full takes the reserve (`give_reserve` of
`broker.store.files.space`), so that acks and definitions are still written while consumers drain
the queues. A last part stays for the next start, which needs space before anything can be drained;
the start takes that, too. The reserve is made again when there is space.
"""

from __future__ import annotations

import logging

from broker.store.files import disk
from broker.store.files.space import make_reserve

log = logging.getLogger("leveret.store")

KEPT_FOR_START = 1024 * 1024


class Reserve:
    """`size` bytes in the file `path`, of which at most 1 MiB is kept for a start; none if `size`
    is 0. All calls may wait for the disk."""

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._size = size
        self._kept = min(KEPT_FOR_START, size // 4)
        self._made = 0

    def give_for_start(self, free: int) -> None:
        """The broker starts: with little space left, it needs what was kept."""
        if self._size == 0 or free < self._size:
            disk.unlink(self._path)

    def look_after(self, free: int, wanted: int) -> None:
        """Makes the reserve as far as it leaves `wanted` of the `free` bytes; its part for the next
        start, wherever it fits at all."""
        if self._size == 0:
            return
        held = disk.size(self._path) if disk.exists(self._path) else 0
        if held < self._size and free - (self._size - held) >= wanted:
            self._make(whole=True)
        elif held < self._kept and free >= 2 * self._kept:
            self._make(whole=False)
        elif not self._made and held:
            # It is there from the last time: the store has to know of it.
            self._make(whole=held >= self._size)

    def _make(self, *, whole: bool) -> None:
        try:
            make_reserve(self._path, self._size, self._kept, whole)
        except OSError as error:
            log.debug("the reserve of %d bytes cannot be made: %s", self._size, error)
        else:
            self._made = self._size if whole else self._kept
