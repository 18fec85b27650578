"""The location index on disk: LevelDB behind a Bloom filter, in constant memory.

Changes gather in a small overlay and go down as one batch. Ids rise with time, so LevelDB appends
rather than sorts. The filter answers most questions about ids that are not there; when too many
were removed it is filled anew from the database, a step at a time (`RotatingBloom`).

A full disk is not a failed one. What it has no room for stays in the overlay, which answers before
the database does, and is tried again with later changes. After a write that failed, LevelDB's own
log may end in half a row, and a compaction that failed ends all writing: so nothing more is written
before the database was closed and opened again, and that waits until there is room for it. What
cannot be written until the broker stops is built anew at the next start.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import plyvel

from broker.kernel.checksum import crc32c
from broker.store.files import disk
from broker.store.files.space import room
from broker.store.index.bloom import RotatingBloom
from broker.store.index.body_census import BodyCensus
from broker.store.index.location_index import (
    ADD,
    REMOVE,
    Change,
    IndexDamaged,
    IndexHasNoRoom,
    IndexSettings,
)

log = logging.getLogger("leveret.store")

PART = 1 << 20
ROW = struct.Struct("16s16s")  # id and entry
UNCHECKED = ("LOCK", "LOG", "LOG.old")
"""Files of LevelDB that hold nothing of the index."""
OVERLAY_MAX = 1024
AT_ONCE = 4096  # rows of an index that is built anew
FOLD_STEP = 4096
ROW_BYTES = 64  # of LevelDB's log for a row, at most
FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
PAUSE_S = 1.0  # between tries to write to a full disk


def is_full(error: Exception) -> bool:
    """Whether what LevelDB failed at may succeed later, when there is space again."""
    return str(error).rstrip("'\"").endswith(FULL)


class LevelIndex:
    """Implements `broker.store.index.location_index.LocationIndex`."""

    backend = "leveldb"
    immediate = False

    def __init__(self, directory: str, settings: IndexSettings, clean: bool) -> None:
        self._path = f"{directory}/index"
        self._bloom_path = f"{directory}/bloom"
        self._sums_path = f"{directory}/index.sums"
        self._settings = settings
        self._overlay: dict[bytes, bytes | None] = {}
        self._fold: Iterator[bytes] | None = None
        self._snapshot: Any = None
        self._halt = threading.Event()
        self._not_before = 0.0  # of time.monotonic: when a full disk is tried again
        self._doubtful = False  # a write failed: the next one needs the database opened again
        self.count = 0
        self.lookups = 0
        bloom = None
        if clean:
            # LevelDB steps over damage at the end of its log as over what was never written.
            if self._sums() != self._saved_sums():
                raise IndexDamaged(f"{self._path} is not what the last stop left")
            with contextlib.suppress(OSError):
                bloom = RotatingBloom.load(disk.read(self._bloom_path))
            if bloom is None:
                raise IndexDamaged(f"{self._bloom_path} is missing or not sound")
        disk.unlink(self._sums_path)
        disk.unlink(self._bloom_path)
        if not clean:
            disk.remove_tree(self._path)
        try:
            # What a clean stop saved is there, whole, or it is built anew.
            self._database = self._opened(anew=not clean)
        except (plyvel.Error, OSError) as error:
            raise IndexDamaged(f"{self._path} cannot be opened: {error}") from None
        if not clean:
            self.counter = BodyCensus(directory)
        self.bloom = bloom or RotatingBloom(settings.bloom_capacity)
        if bloom is not None:
            self.count = bloom.adds - min(bloom.adds, bloom.removes)
            if bloom.capacity != settings.bloom_capacity:
                self.bloom = RotatingBloom(settings.bloom_capacity)
                for id, _ in self.fold():
                    self.bloom.add(id)

    def _opened(self, *, anew: bool) -> Any:
        settings = self._settings
        return plyvel.DB(
            self._path,
            create_if_missing=anew,
            error_if_exists=anew,
            paranoid_checks=True,
            compression=None,
            bloom_filter_bits=10,
            lru_cache_size=max(settings.memory - 2 * settings.write_buffer, 1 << 20),
            write_buffer_size=settings.write_buffer,
            max_open_files=settings.open_files,
        )

    def get(self, id: bytes) -> bytes | None:
        if id in self._overlay:
            return self._overlay[id]
        if not self.bloom.may_hold(id):
            return None
        if self._database.closed:
            raise IndexHasNoRoom(f"{self._path} is closed: no space left on the disk")
        self.lookups += 1
        value: bytes | None = self._database.get(
            id, verify_checksums=self._settings.verify_checksums
        )
        if value is None:
            self.bloom.false_positives += 1
        return value

    def apply(self, batch: Sequence[Change]) -> None:
        overlay = self._overlay
        for operation, id, value in batch:
            overlay[id] = value
            if operation == ADD:
                self.count += 1
                self.bloom.add(id)
            elif operation == REMOVE:
                self.count -= 1
                if self.bloom.remove():
                    self._begin_rotation()
        if len(overlay) >= OVERLAY_MAX:
            self.flush()

    def fold(self) -> Iterator[tuple[bytes, bytes]]:
        self.flush()
        overlay = self._overlay.copy()
        with self._database.snapshot() as snapshot, snapshot.iterator(fill_cache=False) as rows:
            yield from ((id, value) for id, value in rows if id not in overlay)
        for id, value in overlay.items():
            if value is not None:
                yield id, value

    def end_building(self, keeps_all: bool) -> dict[int, int]:
        census = self.counter
        for rows in census.survivors(keeps_all):
            self.count += self.bloom.add_rows(rows)
            if self._overlay or not self._has_room(AT_ONCE):
                self._overlay.update(ROW.iter_unpack(rows))
                self.flush()
            elif not self._written(ROW.iter_unpack(rows)):
                self._overlay.update(ROW.iter_unpack(rows))
        del self.counter
        return census.living_bytes()

    def flush(self) -> None:
        if (
            self._overlay
            and self._has_room(len(self._overlay))
            and self._written(self._overlay.items())
        ):
            self._overlay.clear()
            if self._not_before:
                log.warning("%s: there is room again", self._path)
                self._not_before = 0.0

    def _has_room(self, rows: int) -> bool:
        """Whether `rows` rows may be written now. Opens the database again if a write failed."""
        now = time.monotonic()
        if now < self._not_before:
            return False
        wanted = rows * ROW_BYTES
        if self._doubtful:
            # Opening writes what the log holds into tables.
            wanted += 2 * self._settings.write_buffer
        if room(self._path) < wanted:
            self._wait_for_room("there is no room for it")
            return False
        if self._doubtful:
            self._open_again()
        return True

    def _wait_for_room(self, why: str) -> None:
        if not self._not_before:
            log.warning(
                "%s: %s on the disk; what changes stays in memory until there is", self._path, why
            )
        self._not_before = time.monotonic() + PAUSE_S

    def _written(self, rows: Iterable[tuple[bytes, bytes | None]]) -> bool:
        """Writes rows in one batch; false, and nothing is written, where the disk is full."""
        disk.mark("index flush")
        try:
            with self._database.write_batch(sync=self._settings.sync) as batch:
                put = batch.put
                for id, value in rows:
                    if value is None:
                        batch.delete(id)
                    else:
                        put(id, value)
        except plyvel.Error as error:
            if not is_full(error):
                raise
            self._doubtful = True
            self._wait_for_room("no space was left")
            return False
        return True

    def _open_again(self) -> None:
        """Opens the database again after a failed write. Raises IndexHasNoRoom if the space was
        used up meanwhile, and then the broker stops: without the database it cannot find bodies."""
        turning = self._fold is not None
        self._end_fold()
        self._database.close()
        while True:
            try:
                self._database = self._opened(anew=False)
                break
            except plyvel.Error as error:
                if not is_full(error):
                    raise
            if self._halt.wait(PAUSE_S):
                raise IndexHasNoRoom(f"{self._path} cannot be opened: no space left on the disk")
        self._doubtful = False
        if turning:
            self._begin_fold()

    def _begin_rotation(self) -> None:
        self.flush()
        disk.mark("rotation begins")
        self.bloom.begin_rotation()
        self._begin_fold()

    def _begin_fold(self) -> None:
        self._snapshot = self._database.snapshot()
        self._fold = iter(self._snapshot.iterator(include_value=False, fill_cache=False))
        # What a full disk keeps in memory is not in the snapshot.
        self.bloom.fold_in([id for id, value in self._overlay.items() if value is not None])

    def step(self) -> bool:
        if self._fold is None:
            return False
        ids = list(itertools.islice(self._fold, FOLD_STEP))
        self.bloom.fold_in(ids)
        disk.mark("rotation step")
        if len(ids) < FOLD_STEP:
            self._end_fold()
            self.bloom.end_rotation()
            disk.mark("rotation ends")
            return False
        return True

    def _end_fold(self) -> None:
        if self._snapshot is not None:
            self._fold = None
            self._snapshot.close()
            self._snapshot = None

    def figures(self) -> dict[str, Any]:
        bloom = self.bloom
        return {
            "backend": self.backend,
            "entries": self.count,
            "memory": self._settings.memory + bloom.memory,
            "lookups": self.lookups,
            "bloom": {
                "capacity": bloom.capacity,
                "bits": bloom.bits,
                "bytes": bloom.memory,
                "state": "rotating" if bloom.rotating else "clean",
                "adds": bloom.adds,
                "removes": bloom.removes,
                "rotations": bloom.rotations,
                "false_positives": bloom.false_positives,
            },
        }

    def hurry(self) -> None:
        self._halt.set()

    def close(self, clean: bool) -> None:
        try:
            if clean:
                while self.step():
                    pass
                self._not_before = 0.0
                self.flush()
                if self._overlay or self._doubtful:
                    raise IndexHasNoRoom(f"no space left on the disk for {self._path}")
                disk.write_atomic(self._bloom_path, self.bloom.dump())
        finally:
            self._end_fold()
            self._database.close()
        if clean:
            disk.write_atomic(self._sums_path, self._sums())

    def _sums(self) -> bytes:
        """A line for each file of the database: name, size, CRC-32C of the content."""
        lines = []
        for name in disk.listdir(self._path):
            path = f"{self._path}/{name}"
            if name in UNCHECKED:
                continue
            size = disk.size(path)
            check = 0
            for at in range(0, size, PART):
                check = crc32c(disk.read_part(path, at, PART), check)
            lines.append(f"{name} {size} {check:08x}\n")
        return "".join(lines).encode()

    def _saved_sums(self) -> bytes | None:
        """What the last stop wrote; None if nothing."""
        return disk.read(self._sums_path) if disk.exists(self._sums_path) else None
