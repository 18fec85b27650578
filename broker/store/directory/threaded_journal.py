"""A journal of facts that may come while the loop runs: it is created and compacted in a thread.

Entries do not depend on each other's place, only on their order. Each is written and synced with
the persister's next round; while the file is created or compacted, entries wait in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from broker.store.commit.persister import Persister
from broker.store.directory.journal import Journal, sound_entries
from broker.store.files import disk
from broker.store.files.ahead import allocate_ahead

Done = Callable[[str], object]
"""Called with an empty text when an entry is on disk, else with what went wrong."""

LEAST = 1024
"""A journal with fewer outdated entries is not compacted."""

HEAD_BYTES = 8
"""Before each entry: its length and its checksum."""

PREPARE_AGAIN_S = 5.0
"""Between two tries to get space ahead."""

WASTE_MAX = 4
"""Compacted when it has this many times the entries that still matter."""


def _no_matter(problem: str) -> None:
    """Stands for a caller that waits for nothing."""


class ThreadedJournal:
    """The journal at `path`. `living(payload)` says, in that thread, whether an entry still
    matters. The file has space for `ahead` bytes more than it holds, or at least for half of
    that: entries that free disk space can be written on a full disk."""

    def __init__(
        self,
        persister: Persister,
        path: str,
        living: Callable[[bytes], bool] = lambda _: True,
        ahead: int = 0,
    ) -> None:
        self._persister = persister
        self.path = path
        self._living = living
        self._ahead = ahead
        self._left = 0
        """Bytes of that space that are not used."""
        self._prepare_at = 0.0
        self._journal: Journal | None = None
        self._is_busy = False
        self._waiting: list[tuple[bytes, Done]] = []
        self._in_flight = 0
        self._ended: Callable[[], object] | None = None
        self.entries = 0
        """In the file."""

    # -- start -------------------------------------------------------------------------------------

    def recover(self) -> list[bytes]:
        """The entries of the last run; for the start, before the loop. Raises OSError, and
        ValueError if the file is no journal."""
        if not disk.exists(self.path):
            return []
        journal = self._journal = Journal(self._persister, self.path)
        self.entries = len(journal.recovered)
        self._left = self._allocated()
        return journal.recovered

    @property
    def was_damaged(self) -> bool:
        """Whether recovery found damage before the end of the file: entries may be lost."""
        return self._journal is not None and bool(self._journal.kept)

    @property
    def kept(self) -> str:
        """The copy of a damaged file."""
        return self._journal.kept if self._journal is not None else ""

    @property
    def is_cut(self) -> bool:
        """Whether the file has to be rewritten before anything is added."""
        return self._journal is not None and self._journal.incomplete

    def rewrite(self, payloads: Iterable[bytes]) -> None:
        """Replaces all entries, at once; for the start. Raises OSError."""
        kept = list(payloads)
        if self._journal is None:
            self._journal = Journal(self._persister, self.path)
        self._journal.rewrite(kept)
        self.entries = len(kept)
        self._left = self._allocated()

    # -- space -------------------------------------------------------------------------------------

    def _allocated(self) -> int:
        """Sees to the space behind the file, in the thread or at the start; how much there is."""
        if not self._ahead:
            return 0
        try:
            return self._ahead if allocate_ahead(self.path, self._ahead) else 0
        except OSError:
            return 0

    def prepare(self) -> None:
        """Makes the file, and the space behind it, where they are missing; to be called often."""
        if (
            self._is_busy
            or self._left >= self._ahead / 2
            or time.monotonic() < self._prepare_at
            or self._ended is not None
        ):
            return
        self._prepare_at = time.monotonic() + PREPARE_AGAIN_S
        self._is_busy = True
        if self._journal is None:
            self._persister.collecting.submit(self._open, self._opened)
        else:
            self._persister.collecting.submit(self._allocated, self._prepared)

    def _prepared(self, left: int | None, error: BaseException | None) -> None:
        self._left = left or 0
        self._go_on(error)

    # -- writing -----------------------------------------------------------------------------------

    def append(self, payload: bytes, done: Done = _no_matter) -> None:
        """Adds an entry; `done` follows when it is synced."""
        if self._journal is None or self._is_busy:
            self._waiting.append((payload, done))
            if self._journal is None and not self._is_busy:
                self._is_busy = True
                self._persister.collecting.submit(self._open, self._opened)
            return
        self._write(self._journal, payload, done)

    def _write(self, journal: Journal, payload: bytes, done: Done) -> None:
        self.entries += 1
        self._left -= len(payload) + HEAD_BYTES
        self._in_flight += 1
        journal.append(payload)
        self._persister.after_round(partial(self._written, done), records=False)

    def _written(self, done: Done) -> None:
        self._in_flight -= 1
        done("")
        if not self._in_flight:
            self._rest()

    def _open(self) -> Journal:
        """In the thread. Raises OSError, and ValueError if the file is no journal."""
        journal = Journal(self._persister, self.path)
        if journal.incomplete:
            journal.rewrite(journal.recovered)
        return journal

    def _opened(self, journal: Journal | None, error: BaseException | None) -> None:
        self._journal = journal
        if journal is not None and self._ahead:
            self._persister.collecting.submit(self._allocated, self._prepared)
            return
        self._go_on(error)

    def _go_on(self, error: BaseException | None) -> None:
        """The thread is done: what waited is written, or told that it cannot be."""
        self._is_busy = False
        waiting, self._waiting = self._waiting, []
        for payload, done in waiting:
            if self._journal is None:
                done(f"{self.path} cannot be written: {error}")
            elif self._is_busy:
                self._waiting.append((payload, done))
            else:
                self._write(self._journal, payload, done)
        if not self._in_flight and not self._is_busy:
            self._rest()

    def _rest(self) -> None:
        if self._ended is not None and not self._is_busy:
            ended, self._ended = self._ended, None
            ended()

    # -- compaction --------------------------------------------------------------------------------

    def compact(self, alive: int) -> None:
        """Begins a compaction if it is worth it: `alive` entries still matter. To be called often;
        it begins when nothing is in flight."""
        if (
            self._journal is None
            or self._is_busy
            or self._in_flight
            or self.entries - alive < LEAST
            or self.entries < WASTE_MAX * alive
        ):
            return
        self._is_busy = True
        self._persister.collecting.submit(partial(self._compacted, self._journal), self._replaced)

    def _compacted(self, journal: Journal) -> int:
        """In the thread. Returns how many entries are left."""
        payloads, _ = sound_entries(disk.read(self.path))
        kept = [payload for payload in payloads if self._living(payload)]
        journal.rewrite(kept)
        self._left = self._allocated()
        return len(kept)

    def _replaced(self, count: int | None, error: BaseException | None) -> None:
        if count is not None:
            self.entries = count
        self._go_on(error)

    # -- end ---------------------------------------------------------------------------------------

    def end(self, ended: Callable[[], object]) -> bool:
        """Whether no operation on the file is under way, so that it may be removed; else `ended()`
        is called when that is so."""
        if self._in_flight or self._is_busy:
            self._ended = ended
            return False
        return True
