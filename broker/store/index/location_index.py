"""Where each shared body lies: the location index, one protocol with two backends.

An entry maps a body's id (16 bytes) to file, offset, length and references (16 bytes,
little-endian, `ENTRY`). `ram` keeps the entries in memory; `leveldb` keeps them on disk in constant
memory. Both are used from one thread. An index is never synced while it is in use: after an unclean
stop it is rebuilt from the body files and the queues (`broker.store.bodies.recovery`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from broker.store.index.body_census import ReferenceCounter

ENTRY = struct.Struct("<IIII")
MOVE = struct.Struct("<16sIII")  # id, old file, old offset, new offset
ADD, CHANGE, REMOVE = 0, 1, 2
Change = tuple[int, bytes, bytes | None]
Lost = tuple[bytes, int, int]
"""Id, file and offset of a body that is damaged."""


class IndexDamaged(Exception):
    """What a clean stop saved is not sound: the index has to be rebuilt."""


class IndexHasNoRoom(Exception):
    """The broker stops, and the disk is full: what the index holds cannot be saved."""


class LocationIndex(Protocol):
    """What the body store asks of a backend."""

    backend: str
    immediate: bool  # never waits for the disk: may be asked on the loop

    @property
    def count(self) -> int:
        """Entries; with a backend on disk, as counted since it was opened."""

    def get(self, id: bytes) -> bytes | None:
        """The entry's value, or None."""

    @property
    def counter(self) -> ReferenceCounter:
        """While the index is built anew: takes the bodies of every file, then the references of
        every queue. `end_building` follows, before anything else is asked."""

    def end_building(self, keeps_all: bool) -> dict[int, int]:
        """Leaves bodies without a reference out of the index. With `keeps_all` every body is in it,
        with one reference more than was counted, which is never given back. Returns the bytes of
        living records of each file."""

    def apply(self, batch: Sequence[Change]) -> None:
        """Carries out (ADD | CHANGE | REMOVE, id, value). ADD says that the id is new, CHANGE that
        it is there; REMOVE has no value."""

    def fold(self) -> Iterator[tuple[bytes, bytes]]:
        """Every (id, value) once, in no particular order."""

    def flush(self) -> None:
        """Nothing stays between the caller and the backend, but for what a full disk has no room
        for."""

    def step(self) -> bool:
        """Does a little of what was put off (the rotation of the filters); whether more is left."""

    def figures(self) -> dict[str, Any]:
        """backend, entries, memory (bytes), lookups (questions that went to the disk's side),
        bloom (None or its figures)."""

    def hurry(self) -> None:
        """The broker stops: nothing waits for the disk to have room any more. For any thread."""

    def close(self, clean: bool) -> None:
        """Ends it. `clean`: what was in it can be opened again; raises IndexHasNoRoom, or what the
        backend does, where it cannot be saved."""


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The settings `message_store_index…` of `broker.settings.config`. Sizes are bytes."""

    backend: str = "ram"
    memory: int = 16 << 20
    write_buffer: int = 4 << 20
    verify_checksums: bool = False
    sync: bool = False
    bloom_capacity: int = 1_000_000
    open_files: int = 32


# What the body store wants changed: (id, references more or fewer), or (id, value) for a new entry.
Wish = tuple[bytes, int] | tuple[bytes, bytes]


def carry_out(index: LocationIndex, wishes: Sequence[Wish]) -> list[tuple[int, int]]:
    """Changes references and adds entries, in order. Returns (file, length) of each record that
    has no reference any more. An id that is there already is not added again."""
    freed = []
    for id, wish in wishes:
        found = index.get(id)
        if isinstance(wish, bytes):
            if found is None:
                index.apply([(ADD, id, wish)])
        elif found is not None:
            file, offset, length, references = ENTRY.unpack(found)
            if references + wish > 0:
                value = ENTRY.pack(file, offset, length, references + wish)
                index.apply([(CHANGE, id, value)])
            else:
                index.apply([(REMOVE, id, None)])
                freed.append((file, length))
    index.step()
    return freed


def forget(index: LocationIndex, lost: Sequence[Lost]) -> None:
    """Entries that still point to these places go; references to them find nothing from now on."""
    for id, file, offset in lost:
        found = index.get(id)
        if found is not None and ENTRY.unpack(found)[:2] == (file, offset):
            index.apply([(REMOVE, id, None)])


def move(index: LocationIndex, moves: bytes, file: int) -> int:
    """Entries that still point to where `moves` says (`MOVE` rows) point into `file` afterwards.
    Returns the bytes of their records."""
    moved = 0
    batch: list[Change] = []
    for id, old_file, old_offset, offset in MOVE.iter_unpack(moves):
        found = index.get(id)
        if found is not None:
            at, where, length, references = ENTRY.unpack(found)
            if (at, where) == (old_file, old_offset):
                batch.append((CHANGE, id, ENTRY.pack(file, offset, length, references)))
                moved += length
    index.apply(batch)
    index.flush()
    return moved
