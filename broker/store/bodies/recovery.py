"""Finds a vhost's shared bodies again.

A clean stop leaves a marker, `clean`, that holds the table of files, beside a saved index. It is
removed as soon as it is read: a crash afterwards is seen as such. Without it, or if anything in it
does not fit, the index is built anew:

1. every body of every file is noted with no reference, from the tables of contents, or by scanning
   where one is missing;
2. each queue tells the references of its living records; one to a body that is not there is dropped
   by its queue: its message was acked, or never confirmed;
3. one walk drops bodies without a reference and adds up the living bytes of each file (`finish`).

An index in memory counts in itself; for one on disk `broker.store.index.body_census` does, and the
index is written once, at the end. So memory does not grow with the number of bodies where it is on
disk.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from broker.kernel.checksum import crc32c
from broker.store.bodies.file import TOC_ROW, BodyFile, read_toc, scan, toc_bytes
from broker.store.files import disk
from broker.store.index.backends import open_index
from broker.store.index.location_index import IndexDamaged, LocationIndex

if TYPE_CHECKING:
    from broker.store.bodies.store import BodyStore

CLEAN = "clean"
VERSION = 1
NAME = re.compile(r"(\d{10})-(\d{10})\.(\d{1,9})\.(bdy|toc\.tmp|toc|tmp)")  # never of a user's text
OURS = ("index", "index.ram", "index.sums", "bloom", CLEAN)
HALF_WRITTEN = (f"{CLEAN}.tmp", "bloom.tmp", "index.ram.tmp", "index.sums.tmp")


class BodyRecovery:
    """One start of one store: fills `store.files`. `clean` says whether the references are known
    already; otherwise the index's `counter` and `finish` do their work."""

    def __init__(self, store: BodyStore) -> None:
        self.problems: list[str] = []
        self.keeps_all = False
        self.unread: list[BodyFile] = []
        self._store = store
        disk.makedirs(store.directory)
        marker = self._take_marker()
        files = self._find_files()
        self.next_file = max((file.last for file in files), default=0) + 1
        self.clean = marker is not None and self._fits(marker, files)
        self.index = self._open_index()
        if not self.clean:
            self.index.counter.expect(sum(map(_expected_in, files)))
        for file in files:
            if not self.clean:
                self._add_bodies(file)
            store.files.append(file)

    # -- what is there -----------------------------------------------------------------------------

    def _take_marker(self) -> dict[str, Any] | None:
        """The marker of a clean stop, which is gone afterwards; None if there is none that can be
        read whole."""
        path = f"{self._store.directory}/{CLEAN}"
        if not disk.exists(path):
            return None
        data = self._cached(path)
        disk.unlink(path)
        disk.sync_directory(self._store.directory)
        text, _, check = data.rpartition(b"\n")
        if check != f"{crc32c(text):08x}".encode():
            return None
        marker: dict[str, Any] = json.loads(text)
        return marker if marker.get("version") == VERSION else None

    def _cached(self, path: str) -> bytes:
        """What a file holds that can be found out without it; nothing where the disk fails."""
        try:
            return disk.read(path)
        except OSError as error:
            self.problems.append(
                f"{path} cannot be read: {error.strerror}; what it tells is found out anew"
            )
            return b""

    def _find_files(self) -> list[BodyFile]:
        """The files that count, in order; leftovers of a collection are removed."""
        directory = self._store.directory
        found: list[tuple[int, int, int]] = []
        for name in disk.listdir(directory):
            match = NAME.fullmatch(name)
            if match is None:
                if name in HALF_WRITTEN:
                    disk.unlink(f"{directory}/{name}")
                elif name not in OURS:
                    self.problems.append(f"{directory}/{name} is not known here; it was left alone")
            elif match[4] in ("tmp", "toc.tmp"):
                disk.unlink(f"{directory}/{name}")
            elif match[4] == "bdy":
                found.append((int(match[1]), int(match[2]), int(match[3])))
        files = []
        for first, last, generation in sorted(found):
            if any(
                a <= first and last <= b and (g > generation)
                for a, b, g in found
                if (a, b, g) != (first, last, generation)
            ):
                # Another file stands for it: the collection was done but for this.
                disk.unlink(f"{directory}/{first:010d}-{last:010d}.{generation}.bdy")
                disk.unlink(f"{directory}/{first:010d}-{last:010d}.{generation}.toc")
                continue
            file = BodyFile(directory, first, last, generation)
            file.size = disk.size(file.path)
            file.sealed = True
            files.append(file)
        living = {file.toc_path for file in files}
        for name in disk.listdir(directory):
            if name.endswith(".toc") and NAME.fullmatch(name):
                path = f"{directory}/{name}"
                if path not in living:
                    disk.unlink(path)
        return files

    def _fits(self, marker: dict[str, Any], files: list[BodyFile]) -> bool:
        """Whether the marker speaks of just these files; then they have their sums."""
        if marker["backend"] != self._store.settings.index.backend:
            return False
        rows = {(row[0], row[1], row[2]): row for row in marker["files"]}
        if len(rows) != len(files):
            return False
        for file in files:
            row = rows.get((file.first, file.last, file.generation))
            if row is None or row[3] != file.size:
                return False
            file.valid = row[4]
        self.next_file = max(self.next_file, marker["next_file"])
        return True

    def _open_index(self) -> LocationIndex:
        settings = self._store.settings.index
        if self.clean:
            try:
                return open_index(settings, self._store.directory, True)
            except (IndexDamaged, OSError) as damage:
                self.problems.append(f"{damage}; the index is built anew")
                self.clean = False
        # What another backend left is of no use any more.
        disk.remove_tree(f"{self._store.directory}/index")
        disk.unlink(f"{self._store.directory}/index.sums")
        disk.unlink(f"{self._store.directory}/bloom")
        disk.unlink(f"{self._store.directory}/index.ram")
        return open_index(settings, self._store.directory, False)

    # -- building the index anew -------------------------------------------------------------------

    def _add_bodies(self, file: BodyFile) -> None:
        incarnation = self._store.incarnation
        file.valid = 0
        rows = None
        if disk.exists(file.toc_path):
            rows = read_toc(self._cached(file.toc_path), incarnation, file.first, file.size)
        if rows is None:
            data, unread = disk.read_readable(file.path)
            if unread:
                self._add_what_is_read(file, data, unread)
                return
            rows, gaps, problems = scan(data, incarnation)
            self.problems += [f"{file.path}: {problem}" for problem in problems]
            quarantine = self._store.persister.quarantine
            for at, length in gaps:
                quarantine.take(incarnation, file.first, at, data[at : at + length], length)
                self.problems.append(
                    f"{file.path}: {length} bytes at position {at} are no body; they are in "
                    f"{quarantine.directory}"
                )
            try:
                disk.write_atomic(file.toc_path, toc_bytes(rows, incarnation, file.first))
            except OSError as error:
                self.problems.append(
                    f"{file.toc_path} cannot be written: {error.strerror}; {file.path} is read "
                    "through at the next start too"
                )
        self.index.counter.add_file(file.first, rows)

    def _add_what_is_read(self, file: BodyFile, data: bytes, unread: int) -> None:
        """The disk does not read all of a file that has no table of contents: which bodies are in
        the rest is unknown. So no body is removed before a start that reads it, and a record whose
        body is not found waits for that, with its segment."""
        rows, _, _ = scan(data, self._store.incarnation)
        self.unread.append(file)
        self.keeps_all = True
        self._store.doubt()
        self.problems.append(
            f"{file.path}: {unread} bytes cannot be read; {len(rows) // TOC_ROW.size} bodies were "
            "found in the rest. It was left alone"
        )
        self.index.counter.add_file(file.first, rows)

    def finish(self) -> None:
        """All queues have counted their references: drops bodies without any."""
        if self.clean:
            return
        files = self._store.files
        for number, living in self.index.end_building(self.keeps_all).items():
            files[number].valid = living
        for file in self.unread:
            # Neither empty nor to be collected, whatever is known to live in it.
            file.valid = max(file.valid, 1)
            file.spared_until = math.inf


def _expected_in(file: BodyFile) -> int:
    """How many bodies a file has, by the size of its table of contents."""
    return disk.size(file.toc_path) // TOC_ROW.size if disk.exists(file.toc_path) else 0


def save(store: BodyStore) -> None:
    """The marker of a clean stop; everything else is saved already."""
    text = json.dumps(
        {
            "version": VERSION,
            "backend": store.settings.index.backend,
            "next_file": max((file.last for file in store.files), default=0) + 1,
            "files": [
                [file.first, file.last, file.generation, file.size, file.valid]
                for file in store.files
            ],
        }
    ).encode()
    store.persister.sync_file_system()
    disk.write_atomic(f"{store.directory}/{CLEAN}", text + f"\n{crc32c(text):08x}".encode())
