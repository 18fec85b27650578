"""The location index on disk: LevelDB behind a Bloom filter, in constant memory.

Changes gather in a small overlay and go down as one batch. Ids rise with time, so LevelDB appends
rather than sorts. The filter answers most questions about ids that are not there; when too many
were removed it is filled anew from the database, a step at a time (`RotatingBloom`).
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import plyvel

from broker.kernel.checksum import crc32c
from broker.store import disk
from broker.store.bloom import RotatingBloom
from broker.store.body_census import BodyCensus
from broker.store.location_index import ADD, REMOVE, Change, IndexDamaged, IndexSettings

PART = 1 << 20
ROW = struct.Struct("16s16s")  # id and entry
UNCHECKED = ("LOCK", "LOG", "LOG.old")
"""Files of LevelDB that hold nothing of the index."""
OVERLAY_MAX = 1024
FOLD_STEP = 4096


class LevelIndex:
    """Implements `broker.store.location_index.LocationIndex`."""

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
            self._database = plyvel.DB(
                self._path,
                # What a clean stop saved is there, whole, or it is built anew.
                create_if_missing=not clean,
                error_if_exists=not clean,
                paranoid_checks=True,
                compression=None,
                bloom_filter_bits=10,
                lru_cache_size=max(settings.memory - 2 * settings.write_buffer, 1 << 20),
                write_buffer_size=settings.write_buffer,
                max_open_files=settings.open_files,
            )
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

    def get(self, id: bytes) -> bytes | None:
        if id in self._overlay:
            return self._overlay[id]
        if not self.bloom.may_hold(id):
            return None
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
        with self._database.snapshot() as snapshot, snapshot.iterator(fill_cache=False) as rows:
            yield from rows

    def end_building(self, keeps_all: bool) -> dict[int, int]:
        census = self.counter
        for rows in census.survivors(keeps_all):
            self.count += self.bloom.add_rows(rows)
            disk.mark("index flush")
            with self._database.write_batch(sync=self._settings.sync) as batch:
                put = batch.put
                for id, value in ROW.iter_unpack(rows):
                    put(id, value)
        del self.counter
        return census.living_bytes()

    def flush(self) -> None:
        if not self._overlay:
            return
        disk.mark("index flush")
        with self._database.write_batch(sync=self._settings.sync) as rows:
            for id, value in self._overlay.items():
                if value is None:
                    rows.delete(id)
                else:
                    rows.put(id, value)
        self._overlay.clear()

    def _begin_rotation(self) -> None:
        self.flush()
        disk.mark("rotation begins")
        self.bloom.begin_rotation()
        self._snapshot = self._database.snapshot()
        self._fold = iter(self._snapshot.iterator(include_value=False, fill_cache=False))

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

    def close(self, clean: bool) -> None:
        try:
            if clean:
                while self.step():
                    pass
                self.flush()
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
