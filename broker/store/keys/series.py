"""The index files of one vhost: which there are, in which state, and how they go from one to the
next.

A state is a folder, and one rename takes a file from one to the next: `unsealed` (written to),
`compacted` (in order, synced), `uploaded` (its arrays are an object, a stub stays here), `expired`
(no stream holds a segment that it names; removed when its object is given up). Where a crash left a
file in two states, the later one counts.

One thread changes a series at a time; `files` may be read by any. What the index says is a function
of the streams: what is lost of it is made again from them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from broker.store.files import disk
from broker.store.keys.blobs import Blobs
from broker.store.keys.compaction import compacted
from broker.store.keys.places import LocalFile, RemoteFile, object_of, stub
from broker.store.keys.rows import Damaged, Row
from broker.store.keys.unsealed import Unsealed

UNSEALED, COMPACTED, UPLOADED, EXPIRED = STATES = ("unsealed", "compacted", "uploaded", "expired")

WAITING_MOST = 4
"""Sealed files that may wait for their compaction before nothing more is taken in."""

IndexFile = Unsealed | LocalFile | RemoteFile
Position = tuple[int, int]


class Gap(NamedTuple):
    """A part of a stream that is to be indexed again; from and up to (segment, position)."""

    incarnation: int
    begin: Position
    end: Position


class Series:
    """`directory` is the index's own; `capacity` the items of each new file. `random(n)` gives n
    random bytes."""

    def __init__(
        self,
        directory: str,
        capacity: int,
        *,
        blobs: Blobs | None = None,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.directory = directory
        self.capacity = capacity
        self._blobs = blobs
        self._random = random
        self._files: dict[int, IndexFile] = {}
        self._positions: dict[int, Position] = {}
        self._secret = random(16)
        self._next_number = 1
        self._next_serial = 0
        self._current: Unsealed | None = None
        self._waiting: list[Unsealed] = []
        self._retired: list[str] = []
        self._removable: list[tuple[int, str]] = []
        self.damaged: set[int] = set()
        """Numbers of files in which something failed its checksum, added by readers."""
        self.gaps: list[Gap] = []

    # -- what there is -----------------------------------------------------------------------------

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """All that can be searched, by number."""
        return tuple(file for _, file in sorted(self._files.copy().items()))

    def file(self, number: int) -> IndexFile | None:
        """A file in its present state; None: it expired."""
        return self._files.get(number)

    @property
    def is_stalled(self) -> bool:
        """Whether compaction, because of a full disk, has to go on before more can be taken in."""
        return len(self._waiting) >= WAITING_MOST

    @property
    def work_waits(self) -> bool:
        """Whether `compact_next` has something to do."""
        return bool(self._waiting)

    def position(self, incarnation: int) -> Position | None:
        """Up to where a stream is indexed."""
        found = None if self._current is None else self._current.next_of(incarnation)
        return self._positions.get(incarnation) if found is None else found

    def figures(self) -> dict[str, dict[str, int]]:
        """Files, items and bytes on this disk by state."""
        found = {state: {"files": 0, "items": 0, "bytes": 0} for state in STATES[:3]}
        for file in self._files.copy().values():
            row = found[UNSEALED if isinstance(file, Unsealed) else file.state]
            row["files"] += 1
            if isinstance(file, Unsealed):
                row["items"] += file.count
                row["bytes"] += file.length
            else:
                row["items"] += file.head.items
                row["bytes"] += file.head.arrays_at if file.is_remote else file.head.length
        return found

    def rows_of(self, file: IndexFile) -> list[Row]:
        """The streams in a file."""
        return file.rows if isinstance(file, Unsealed) else file.head.rows

    # -- recovery ----------------------------------------------------------------------------------

    def recover(self) -> list[str]:
        """Finds the files again. Returns what was wrong."""
        problems: list[str] = []
        disk.make_all([self.directory, *(f"{self.directory}/{state}" for state in STATES)])
        places: dict[int, str] = {}
        for state in STATES:
            for name in disk.listdir(f"{self.directory}/{state}"):
                path = f"{self.directory}/{state}/{name}"
                if not (len(name) == 10 and name.isascii() and name.isdigit()):
                    if name.endswith(".tmp"):
                        disk.unlink(path)
                    else:
                        problems.append(f"{path} is not known here; it was left alone")
                    continue
                if int(name) in places:
                    disk.unlink(f"{self.directory}/{places[int(name)]}/{name}")
                places[int(name)] = state
        for number, state in sorted(places.items()):
            if state != EXPIRED and not self._load(number, state, problems):
                break
        self._next_number = max(places, default=0) + 1
        self._note_gaps()
        self._go_on()
        self._keep_objects()
        return problems

    def _keep_objects(self) -> None:
        """Says which objects are of use: another one was left by a crash."""
        if self._blobs is not None:
            files = self._files.values()
            self._blobs.keep([file.object for file in files if isinstance(file, RemoteFile)])

    def _load(self, number: int, state: str, problems: list[str]) -> bool:
        """Takes one file up. False: it and all later ones are to be made again."""
        path = self._path(state, number)
        file: IndexFile
        try:
            if state == UNSEALED:
                file = Unsealed.load(path)
            elif state == COMPACTED:
                file = LocalFile(path)
            elif self._blobs is None:
                raise Damaged(f"{path}: there is no object store")
            else:
                file = RemoteFile(path, self._blobs)
        except (Damaged, OSError) as error:
            problems.append(f"{error}; what it said is made again from the streams")
            if state == UNSEALED:
                self._drop_unsealed(number)
                return False
            self.damaged.add(number)
            self._retired.append(path)
            return True
        head = file if isinstance(file, Unsealed) else file.head
        before = self._files.get(number - 1)
        if isinstance(before, Unsealed) and head.serial != before.serial + before.count:
            # Items at the end of the file before were lost, and this one begins behind them.
            self._drop_unsealed(number)
            return False
        self._files[number] = file
        self._secret = head.secret
        return True

    def _drop_unsealed(self, first: int) -> None:
        for name in disk.listdir(f"{self.directory}/{UNSEALED}"):
            if name.isdigit() and int(name) >= first:
                disk.unlink(f"{self.directory}/{UNSEALED}/{name}")

    def _note_gaps(self) -> None:
        """What damaged files said, by their neighbours."""
        for number in sorted(self.damaged):
            before = self._files.get(number - 1)
            after = next(
                (file for each, file in sorted(self._files.items()) if each > number), None
            )
            begins = {row.incarnation: row.next for row in self.rows_of(before)} if before else {}
            for row in self.rows_of(after) if after else []:
                begin = begins.get(row.incarnation, (0, 0))
                if begin < row.begin:
                    self.gaps.append(Gap(row.incarnation, begin, row.begin))
        self.damaged.clear()

    def _go_on(self) -> None:
        """Continues the newest file, where that is unsealed; earlier ones wait for compaction."""
        files = self.files
        self._waiting = [file for file in files if isinstance(file, Unsealed)]
        if files:
            newest = files[-1]
            head = newest if isinstance(newest, Unsealed) else newest.head
            self._positions = {row.incarnation: row.next for row in self.rows_of(newest)}
            self._next_serial = head.serial + (
                newest.count if isinstance(newest, Unsealed) else newest.head.items
            )
            if isinstance(newest, Unsealed) and not newest.is_full:
                self._current = self._waiting.pop()

    # -- writing -----------------------------------------------------------------------------------

    def current(self) -> Unsealed:
        """The file that is written to; the next one where it is full."""
        if self._current is not None and self._current.is_full:
            self.seal()
        if self._current is None:
            number = self._next_number
            self._next_number += 1
            self._current = Unsealed(
                self._path(UNSEALED, number),
                number,
                int.from_bytes(self._random(8), "little"),
                self._next_serial,
                self._secret,
                self.capacity,
            )
            for incarnation, position in self._positions.items():
                self._current.stream(incarnation, position)
            self._files[number] = self._current
        return self._current

    def seal(self) -> None:
        """No more goes into the file that is written to."""
        if self._current is None:
            return
        self._note_positions()
        if self._current.count:
            self._next_serial = self._current.serial + self._current.count
            self._waiting.append(self._current)
        else:
            self._current.close()
            del self._files[self._current.number]
            disk.unlink(self._current.path)
        self._current = None

    def _note_positions(self) -> None:
        if self._current is not None:
            self._positions = {row.incarnation: row.next for row in self._current.rows}

    def flush(self) -> int:
        """Writes what was added; its bytes. Raises OSError."""
        written = 0
        self._note_positions()
        for file in (*self._waiting, self._current):
            if file is not None and file.unwritten:
                written += file.flush()
        return written

    def forget(self, incarnations: Iterable[int]) -> None:
        """Streams that are deleted: files that are begun from now on do not know them."""
        self._note_positions()
        gone = set(incarnations) & self._positions.keys()
        if gone:
            self.seal()
            for incarnation in gone:
                del self._positions[incarnation]

    def begin_again(self, incarnation: int) -> None:
        """The stream holds other messages than those that were indexed: all of it is indexed."""
        self.forget([incarnation])

    # -- from state to state -----------------------------------------------------------------------

    def compact_next(self) -> bool:
        """Puts the oldest sealed file in order; whether there was one. Raises OSError: it is tried
        again with the next call."""
        if not self._waiting:
            return False
        source = self._waiting[0]
        self._put_in_place(self._path(COMPACTED, source.number), [compacted(source)])
        self._files[source.number] = LocalFile(self._path(COMPACTED, source.number))
        del self._waiting[0]
        source.close()
        disk.unlink(source.path)
        for number, path in self._removable:
            if number <= source.number:
                disk.unlink(path)
        self._removable = [row for row in self._removable if row[0] > source.number]
        return True

    def _put_in_place(self, path: str, pieces: list[bytes]) -> None:
        temporary = f"{path}.tmp"
        try:
            disk.write_new(temporary, pieces)
            disk.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                disk.unlink(temporary)
            raise
        disk.sync_directory(str(Path(path).parent))

    def next_upload(self, most: int) -> LocalFile | None:
        """The oldest compacted file, if those on this disk have more than `most` bytes together."""
        here = [
            file
            for file in self.files
            if isinstance(file, LocalFile) and not isinstance(file, RemoteFile)
        ]
        too_much = sum(file.head.length for file in here) > most
        return here[0] if here and too_much else None

    def uploaded(self, number: int, object: str, etag: str) -> bool:
        """A compacted file was put into an object: a stub takes its place. False: it is not there
        any more. Raises OSError."""
        file = self._files.get(number)
        if self._blobs is None or isinstance(file, RemoteFile) or not isinstance(file, LocalFile):
            return False
        path = self._path(UPLOADED, number)
        self._put_in_place(path, stub(file, object, etag))
        self._files[number] = RemoteFile(path, self._blobs)
        disk.unlink(file.path)
        return True

    def retire(self, number: int) -> None:
        """Takes a damaged file out: what it said is a gap, to be indexed again; the file itself
        goes when that is safe."""
        file = self._files.get(number)
        if file is None or isinstance(file, Unsealed):
            return
        self.gaps += [
            Gap(row.incarnation, row.begin, row.next)
            for row in file.head.rows
            if row.begin < row.next
        ]
        del self._files[number]
        self._retired.append(file.path)
        if isinstance(file, RemoteFile):
            self._delete(file.object)

    def filled(self) -> None:
        """All gaps are indexed again: the damaged files go when that is synced."""
        if not self._retired:
            return
        self.seal()
        if self._waiting:
            number = self._waiting[-1].number
            self._removable += [(number, path) for path in self._retired]
        else:
            for path in self._retired:
                disk.unlink(path)
        self._retired = []

    def expire(self, held: Mapping[int, int]) -> int:
        """Takes out the files none of whose segments a stream holds: `held` are the first segments
        of the streams by incarnation. The newest file stays. Returns how many went."""
        files = self.files
        gone = 0
        for file in files[:-1]:
            if isinstance(file, Unsealed) or any(
                row.items and row.last_segment >= held.get(row.incarnation, row.last_segment + 1)
                for row in file.head.rows
            ):
                continue
            number = file.head.number
            disk.rename(file.path, self._path(EXPIRED, number))
            del self._files[number]
            if not file.is_remote:
                disk.unlink(self._path(EXPIRED, number))
            gone += 1
        return gone

    def delete_expired(self) -> int:
        """Has the objects of expired files deleted; how many files went."""
        removed = 0
        for name in disk.listdir(f"{self.directory}/{EXPIRED}"):
            path = f"{self.directory}/{EXPIRED}/{name}"
            try:
                self._delete(object_of(path)[0])
            except Damaged:
                # It was never uploaded: a crash left it here.
                pass
            disk.unlink(path)
            removed += 1
        return removed

    def _delete(self, object: str) -> None:
        # Without a store now, the next start with one finds that nothing needs it.
        if self._blobs is not None:
            self._blobs.delete(object)

    def close(self) -> None:
        """Writes what was added and closes the file. Raises OSError."""
        try:
            self.flush()
        finally:
            for file in (*self._waiting, self._current):
                if file is not None:
                    file.close()

    def _path(self, state: str, number: int) -> str:
        return f"{self.directory}/{state}/{number:010d}"
