"""Gives the room of dead bodies back: copies the living ones of a run of files into one new file.

When: (A) there are at least three files and more than half of all their bytes are dead, or (B) more
than half of one file's and none in it died for a while. What: a run of neighbours that gives much
back, whose living bytes fit into one file and are no more than its dead ones (`BodyFiles.choose`).
So a byte copied is a byte gained, and the disk holds at most twice what lives, and three files.

How: in a thread, from `.tmp` with a sync to a rename. The name is the commit record: a file covers
all older generations of the numbers it names. Only then does the loop point the index to the new
file and remove the old ones; readers that have them open read on.

A record of which it is unknown whether it is alive keeps its file, as does one that cannot be
copied: a run that fails changes nothing, and a file that is to blame is left out of the next ones.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from broker.store.bodies.file import (
    HEADER_BYTES,
    TOC_ROW,
    BodyFile,
    header,
    is_sound,
    read_toc,
    scan,
    toc_bytes,
)
from broker.store.files import disk
from broker.store.index.location_index import MOVE, Lost

if TYPE_CHECKING:
    from broker.store.bodies.store import BodyStore
    from broker.store.commit.persister import Persister
    from broker.store.commit.quarantine import Quarantine

log = logging.getLogger("leveret.store")

PAUSE_AFTER_ERROR_S = 60.0
PAUSE_OF_A_FILE_S = 600.0
ASKED_AT_ONCE = 4096  # bodies that the index is asked about in one go


class Uncollectable(Exception):
    """A file of the run is to blame that it failed: others leave it out for `pause` seconds."""

    def __init__(self, file: BodyFile, text: str, pause: float = PAUSE_OF_A_FILE_S) -> None:
        super().__init__(f"{file.path} {text}")
        self.file = file
        self.pause = pause


class NotSynced(Exception):
    """A sync of the directory failed: it may concern files of others, too, and the next
    sync would not hear of it."""


class Collector:
    """The collector of one store. `tick` is called on the loop; one run is in hand at a time."""

    def __init__(self, store: BodyStore, persister: Persister) -> None:
        self.runs = 0
        self.copied_bytes = 0
        self.reclaimed_bytes = 0
        self.busy = False
        self._store = store
        self._persister = persister
        self._not_before = 0.0
        self._failures = 0
        self.halt = threading.Event()

    def stop(self) -> None:
        """No more runs; one in hand leaves at most a file for the next start to remove."""
        self.halt.set()

    def tick(self, now: float) -> None:
        """Starts a run if there is one that is worth it."""
        if self.busy or self.halt.is_set() or now < self._not_before:
            return
        settings = self._store.settings
        run = self._store.files.choose(now, settings.file_size, settings.collect_quiet)
        if not run:
            return
        self.busy = True
        for file in run:
            file.collecting = True
        size = sum(file.size for file in run)

        def copied(result: Merged | None, error: BaseException | None) -> None:
            if self.halt.is_set():
                return
            if error is not None or result is None:
                log.error("collecting shared bodies in %s failed: %s", self._store.directory, error)
                if isinstance(error, NotSynced):
                    self._store.sync_failed(str(error))
                    return
                self._failures += 1
                if isinstance(error, Uncollectable):
                    error.file.spared_until = now + error.pause
                    if error.pause == math.inf:
                        # The next start finds out what is in it, and who refers to that.
                        self._store.doubt()
                else:
                    self._not_before = now + PAUSE_AFTER_ERROR_S
                self.busy = False
                self._store.let_go(run)
                return
            for entry in result.kept_aside:
                self._persister.quarantine.note(entry)
            self._store.replace(
                run, result.file, result.moves, result.lost, lambda: finished(result)
            )

        def finished(result: Merged) -> None:
            self.runs += 1
            self.copied_bytes += result.copied
            self.reclaimed_bytes += max(size - result.file.size, 0)
            self.busy = False
            # At its own pace, not at that of the ticks, while there is something to do.
            self.tick(now)

        # Never a name that a run which failed has used: what it left may come back after a crash.
        generation = max(file.generation for file in run) + 1 + self._failures
        merged = BodyFile(self._store.directory, run[0].first, run[-1].last, generation)
        quarantine = self._persister.quarantine
        owner = quarantine.owner_of(self._store.incarnation)
        self._persister.collecting.submit(
            lambda: copy(self._store, run, merged, quarantine, owner), copied
        )


class Merged:
    """What `copy` made: the file, `moves` for the index (`MOVE` rows), bytes copied; the places of
    damaged bodies that are `lost`, and their entries in quarantine."""

    def __init__(self, file: BodyFile) -> None:
        self.file = file
        self.moves = b""
        self.copied = 0
        self.lost: list[Lost] = []
        self.kept_aside: list[dict[str, Any]] = []


def copy(
    store: BodyStore,
    run: list[BodyFile],
    merged: BodyFile,
    quarantine: Quarantine,
    owner: tuple[str, str],
) -> Merged:
    """Copies what lives in the run's files, in the collector's thread; what is damaged is kept in
    quarantine, as of `owner`, before its file goes. Raises Uncollectable, or OSError where nothing
    can be written."""
    temporary = merged.path.removesuffix("bdy") + "tmp"
    result = Merged(merged)
    rows = bytearray()
    moves: list[bytes] = []
    pace = Pace(store.settings.collect_rate, store.collector.halt)

    def records() -> Iterator[bytes]:
        yield header(merged.first, merged.last)
        at = HEADER_BYTES
        for file in run:
            for id, offset, record in living_records(store, file):
                if not is_sound(record, store.incarnation):
                    result.lost.append((id, file.first, offset))
                    result.kept_aside.append(
                        quarantine.keep(owner, store.incarnation, file.first, offset, record)
                    )
                    continue
                rows.extend(TOC_ROW.pack(id, at, len(record)))
                moves.append(MOVE.pack(id, file.first, offset, at))
                at += len(record)
                pace.wait(len(record))
                yield record

    made = [temporary]
    try:
        size = disk.write_new(temporary, records())
        made.append(merged.toc_path)
        disk.write_plain(merged.toc_path, toc_bytes(bytes(rows), store.incarnation, merged.first))
        made.insert(0, merged.path)
        disk.rename(temporary, merged.path)
        try:
            disk.sync_directory(store.directory)
        except OSError as error:
            text = f"{error.strerror} in sync_directory of {store.directory}"
            raise NotSynced(text) from None
    except Exception:
        # The old files still stand for themselves, whatever of this one is on disk.
        for path in made:
            with contextlib.suppress(OSError):
                disk.unlink(path)
        raise
    merged.size = size
    result.moves = b"".join(moves)
    result.copied = size - HEADER_BYTES
    return result


def living_records(store: BodyStore, file: BodyFile) -> Iterator[tuple[bytes, int, bytes]]:
    """(id, offset, record) of what the index points to; the record may be damaged. Raises
    Uncollectable."""
    rows = contents(store, file)
    for start in range(0, len(rows), ASKED_AT_ONCE * TOC_ROW.size):
        part = rows[start : start + ASKED_AT_ONCE * TOC_ROW.size]
        entries = list(TOC_ROW.iter_unpack(part))
        living = store.living_of(entries, file.first)
        for (id, offset, length), lives in zip(entries, living, strict=True):
            if not lives:
                continue
            try:
                record = disk.read_part(file.path, offset, length)
            except OSError as error:
                raise Uncollectable(file, f"cannot be read: {error.strerror}") from None
            yield id, offset, record


def contents(store: BodyStore, file: BodyFile) -> bytes:
    """The rows of a file's table of contents; those of a scan where there is none that is sound.
    Raises Uncollectable."""
    with contextlib.suppress(OSError):
        rows = read_toc(disk.read(file.toc_path), store.incarnation, file.first, file.size)
        if rows is not None:
            return rows
    try:
        data = disk.read(file.path)
        rows, _, _ = scan(data, store.incarnation)
    except OSError as error:
        raise Uncollectable(file, f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Uncollectable(file, f"cannot be read: {error}", math.inf) from None
    known = sum(length for _, _, length in TOC_ROW.iter_unpack(rows))
    if HEADER_BYTES + known != len(data):
        # A body that lives may be in the rest: only a table of contents would know its id.
        unknown = len(data) - known - HEADER_BYTES
        text = f"has no table of contents, and {unknown} bytes of it are no body; it is left alone"
        raise Uncollectable(file, text, math.inf)
    return rows


class Pace:
    """Lets through `rate` bytes a second on average, with a burst of a tenth of a second; all at
    once when it is to `halt`."""

    def __init__(self, rate: int, halt: threading.Event) -> None:
        self._rate = rate
        self._halt = halt
        self._due = time.monotonic()

    def wait(self, size: int) -> None:
        now = time.monotonic()
        self._due = max(self._due, now - 0.1) + size / self._rate
        if self._due > now:
            self._halt.wait(self._due - now)
