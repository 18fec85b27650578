"""Keeps a journal short while the loop runs, and entries are added to it all the time.

A thread reads the file and writes another one of those of its entries that still matter. What was
added meanwhile follows with a round of the persister, which puts the new file in the old one's
place (`Journal.put_in_place`). A kill at any moment leaves one of the two files, whole.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial

from broker.store.commit.persister import Persister
from broker.store.directory.journal import Journal, content, entries
from broker.store.files import disk

log = logging.getLogger("leveret.journal")

Living = Callable[[list[bytes]], Iterator[bytes]]
"""Of entries in their order, those that still matter, in an order in which they can be carried out.
It is called in a thread."""

LEAST_BYTES = 4 << 20
"""A shorter journal is left as it is."""

GROWTH = 2
"""It is looked at again when it has this many times the bytes that it had behind the last time."""


class JournalCompaction:
    """Of one journal, which is sound."""

    def __init__(self, persister: Persister, journal: Journal, living: Living) -> None:
        disk.unlink(journal.shorter_path)
        self._persister = persister
        self._journal = journal
        self._living = living
        self._at = self._next_at()
        self._is_busy = False
        self._has_ended = False

    def _next_at(self) -> int:
        return max(LEAST_BYTES, GROWTH * self._journal.length)

    def consider(self) -> None:
        """Begins if it may be worth it; to be called with each entry that is added."""
        if self._journal.length < self._at or self._is_busy or self._has_ended:
            return
        self._is_busy = True
        length = self._journal.begin_shorter()
        # Then all of that is in the file.
        self._persister.after_round(partial(self._begin, length), records=False)

    def end(self) -> None:
        """The journal goes: a compaction that is under way comes to nothing."""
        self._has_ended = True

    def _begin(self, length: int) -> None:
        self._persister.collecting.submit(partial(self._write, length), self._written)

    def _write(self, length: int) -> int:
        """In the thread: the bytes of the new file; 0: it is not worth it. Raises OSError, and
        ValueError if an entry cannot be read."""
        if self._has_ended:
            return 0
        found, sound = entries(disk.read_part(self._journal.path, 0, length))
        if sound != length:
            raise ValueError(f"it is damaged behind its first {sound} bytes")
        living = content(self._living(found))
        if GROWTH * len(living) > length:
            return 0
        try:
            return disk.write_new(self._journal.shorter_path, [living])
        except OSError:
            # A part of it may have taken the last space.
            with contextlib.suppress(OSError):
                disk.unlink(self._journal.shorter_path)
            raise

    def _written(self, length: int | None, error: BaseException | None) -> None:
        if error is not None and not self._has_ended:
            log.error("cannot compact %s: %s", self._journal.path, error)
        if length and not self._has_ended:
            self._journal.put_in_place(length)
            self._persister.after_round(self._replaced, records=False)
            return
        self._journal.give_up_shorter()
        self._replaced()

    def _replaced(self) -> None:
        self._at = self._next_at()
        self._is_busy = False
