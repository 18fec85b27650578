# cython: language_level=3
"""The location index in memory: open addressing, 32 bytes a slot, 40 to 50 bytes an entry.

The table is cut into 4,096 parts by the hash, and each part grows and shrinks by itself: with ten
million entries the longest pause is the rehash of 2,500 slots.
"""

import contextlib
import math
import os
import struct

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from broker.kernel.checksum cimport crc32c_of
from broker.kernel.checksum import crc32c
from broker.kernel.octets cimport Octets, octets
from broker.store.files import disk
from broker.store.files.body_record cimport TocEntry
from broker.store.files.disk cimport file_free, file_new, run_op
from broker.store.files.operation cimport File, OP_OPEN, OP_READ, Op
from broker.store.index.body_census cimport FileSums, ReferenceCounter
from broker.store.index.location cimport Location, hash_of

from broker.store.index.location_index import REMOVE, IndexDamaged

cdef enum:
    SHARDS = 4096
    SHARD_BITS = 12
    SLOT_BYTES = 32
    FIRST = 8                    # slots of a part with one entry
    SIZED_LEAST = 64             # entries a part, from which on it is worth sizing it at once
    FULL = 80                    # per cent of the slots, then the part grows by a quarter
    EMPTY_ENOUGH = 30            # per cent, then it shrinks to half


cdef packed struct Move:
    uint8_t id[16]
    uint32_t file
    uint32_t offset
    uint32_t new_offset


MAGIC = b"LVRX"
VERSION = 2
HEAD = struct.Struct("<4sIQ")
TABLE_BYTES = SHARDS * 8         # capacity and count of each part
PIECE = 1 << 20


cdef inline uint32_t home(const uint8_t* id, uint32_t capacity) noexcept nogil:
    return <uint32_t> ((<uint64_t> <uint32_t> hash_of(id, 0) * capacity) >> 32)


cdef class RamIndex(ReferenceCounter):
    """Implements `broker.store.index.location_index.LocationIndex`. `clean`: the entries that
    `close` saved are taken up. Raises IndexDamaged if they are not sound."""

    backend = "ram"
    immediate = True

    def __cinit__(self, str directory, bint clean=False):
        self.shards = <Shard*> calloc(SHARDS, sizeof(Shard))
        if self.shards == NULL:
            raise MemoryError("no memory for a location index")
        self.path = f"{directory}/index.ram"

    def __init__(self, directory, clean=False):
        if clean:
            self.load()
        disk.unlink(self.path)

    def __dealloc__(self):
        cdef int i
        if self.shards != NULL:
            for i in range(SHARDS):
                free(self.shards[i].slots)
            free(self.shards)

    cdef Location* find(self, const uint8_t* id) noexcept:
        """The entry of an id, or NULL. It stays where it is until the next `put` or `remove`."""
        cdef Shard* shard = &self.shards[hash_of(id, 0) >> (64 - SHARD_BITS)]
        cdef uint32_t at
        if shard.count == 0:
            return NULL
        at = home(id, shard.capacity)
        while shard.slots[at].file:
            if memcmp(shard.slots[at].id, id, 16) == 0:
                return &shard.slots[at]
            at += 1
            if at == shard.capacity:
                at = 0
        return NULL

    cdef Location* put(self, const uint8_t* id) except NULL:
        """The entry of an id, made if it is missing; the caller fills it at once (a file of 0 is no
        entry)."""
        cdef Shard* shard = &self.shards[hash_of(id, 0) >> (64 - SHARD_BITS)]
        cdef Location* found = self.find(id)
        cdef uint32_t at
        if found != NULL:
            return found
        if <uint64_t> (shard.count + 1) * 100 > <uint64_t> shard.capacity * FULL:
            self.resize(shard, shard.capacity + shard.capacity // 4 if shard.capacity else FIRST)
        at = home(id, shard.capacity)
        while shard.slots[at].file:
            at += 1
            if at == shard.capacity:
                at = 0
        memcpy(shard.slots[at].id, id, 16)
        shard.count += 1
        self.count += 1
        return &shard.slots[at]

    cdef int remove(self, const uint8_t* id) except -1:
        """Takes an entry away; one that is not there is fine."""
        cdef Shard* shard = &self.shards[hash_of(id, 0) >> (64 - SHARD_BITS)]
        cdef Location* found = self.find(id)
        cdef uint32_t hole, at, wanted
        if found == NULL:
            return 0
        hole = at = <uint32_t> (found - shard.slots)
        while True:
            at += 1
            if at == shard.capacity:
                at = 0
            if not shard.slots[at].file:
                break
            wanted = home(shard.slots[at].id, shard.capacity)
            # Entries that a probe could not reach any more move into the hole.
            if (hole < wanted <= at) if hole <= at else (wanted > hole or wanted <= at):
                continue
            shard.slots[hole] = shard.slots[at]
            hole = at
        shard.slots[hole].file = 0
        shard.count -= 1
        self.count -= 1
        if shard.count == 0:
            self.memory -= shard.capacity * SLOT_BYTES
            free(shard.slots)
            shard.slots = NULL
            shard.capacity = 0
        elif (shard.capacity > 4 * FIRST
              and <uint64_t> shard.count * 100 < <uint64_t> shard.capacity * EMPTY_ENOUGH):
            self.resize(shard, shard.capacity // 2)
        return 0

    cdef int resize(self, Shard* shard, uint32_t capacity) except -1:
        cdef Location* old = shard.slots
        cdef Location* slots = <Location*> calloc(capacity, SLOT_BYTES)
        cdef uint32_t i, at
        if slots == NULL:
            raise MemoryError("no memory for a location index")
        for i in range(shard.capacity):
            if old[i].file:
                at = home(old[i].id, capacity)
                while slots[at].file:
                    at += 1
                    if at == capacity:
                        at = 0
                slots[at] = old[i]
        self.memory += (<uint64_t> capacity - shard.capacity) * SLOT_BYTES
        free(old)
        shard.slots = slots
        shard.capacity = capacity
        return 0

    # -- the protocol ------------------------------------------------------------------------------

    def get(self, id):
        cdef Octets wanted = octets(id)
        cdef Location* found = self.find(wanted.data)
        return None if found == NULL else (<const char*> &found.file)[:16]

    @property
    def counter(self):
        """Gets the references while the index is rebuilt."""
        return self

    def apply(self, batch) -> None:
        cdef Location* entry
        cdef bytes id, value
        for operation, id, value in batch:
            if operation == REMOVE:
                self.remove(id)
            else:
                entry = self.put(id)
                memcpy(&entry.file, <const char*> value, 16)

    def move(self, moves, uint32_t file) -> int:
        """See `broker.store.index.location_index.move`."""
        cdef Location* entry
        cdef const Move* row
        cdef size_t at
        cdef uint64_t moved = 0
        cdef Octets rows = octets(moves)
        for at in range(0, rows.length, sizeof(Move)):
            row = <const Move*> (rows.data + at)
            entry = self.find(row.id)
            if entry != NULL and entry.file == row.file and entry.offset == row.offset:
                entry.file = file
                entry.offset = row.new_offset
                moved += entry.length
        return moved

    def fold(self):
        """Every entry once, as (id, value); the index must not change meanwhile."""
        cdef int i
        cdef uint32_t at
        cdef Shard* shard
        for i in range(SHARDS):
            shard = &self.shards[i]
            for at in range(shard.capacity):
                if shard.slots[at].file:
                    yield ((<const char*> shard.slots[at].id)[:16],
                           (<const char*> &shard.slots[at].file)[:16])

    def flush(self) -> None:
        """Has no database behind it."""

    def step(self) -> bool:
        """There is no work that was put off."""
        return False

    def figures(self) -> dict:
        return {"backend": self.backend, "entries": self.count, "memory": self.memory,
                "lookups": 0, "bloom": None}

    # -- rebuilding --------------------------------------------------------------------------------

    def expect(self, uint64_t bodies) -> None:
        cdef double mean = <double> bodies / SHARDS
        cdef int i
        cdef uint32_t capacity
        if mean < SIZED_LEAST:
            return
        # So much that hardly any part grows: their counts vary like the square root.
        capacity = <uint32_t> ((mean + 3 * math.sqrt(mean)) * 100 / FULL) + 1
        for i in range(SHARDS):
            if self.shards[i].capacity < capacity:
                self.resize(&self.shards[i], capacity)

    def add_file(self, uint32_t number, bytes rows) -> None:
        cdef const TocEntry* entries = <const TocEntry*> <const char*> rows
        cdef Location* entry
        cdef size_t i
        if self.sums is None:
            self.sums = FileSums()
        self.sums.add(number)
        for i in range(<size_t> len(rows) // sizeof(TocEntry)):
            entry = self.put(entries[i].id)
            entry.file = number
            entry.offset = entries[i].offset
            entry.length = entries[i].length
            entry.references = 0

    cdef int count_reference(self, const uint8_t* id) except -1:
        cdef Location* found = self.find(id)
        if found == NULL:
            return 0
        found.references += 1
        return 1

    def end_building(self, bint keeps_all) -> dict:
        """See `broker.store.index.location_index.LocationIndex`."""
        cdef int i
        cdef uint32_t at, dead
        cdef Shard* shard
        cdef FileSums sums = self.sums or FileSums()
        for i in range(SHARDS):
            shard = &self.shards[i]
            dead = 0
            for at in range(shard.capacity):
                if not shard.slots[at].file:
                    continue
                if keeps_all:
                    shard.slots[at].references += 1
                elif shard.slots[at].references == 0:
                    dead += 1
                    continue
                sums.lives(shard.slots[at].file, shard.slots[at].length)
            if dead:
                self.drop_dead(shard, dead)
        self.sums = None
        return sums.of_files()

    cdef int drop_dead(self, Shard* shard, uint32_t dead) except -1:
        """Takes what has no reference out of a part, and gives the part the size of the rest."""
        cdef uint32_t at
        cdef uint32_t left = shard.count - dead
        for at in range(shard.capacity):
            if shard.slots[at].references == 0:
                shard.slots[at].file = 0
        self.count -= dead
        shard.count = left
        if left:
            return self.resize(shard, max(<uint32_t> (<uint64_t> left * 100 // FULL) + 1, FIRST))
        self.memory -= <uint64_t> shard.capacity * SLOT_BYTES
        free(shard.slots)
        shard.slots = NULL
        shard.capacity = 0
        return 0

    # -- saved -------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Never waits."""

    def close(self, bint clean) -> None:
        """Saves the parts as they are if `clean`. Raises OSError, and leaves no file then."""
        if not clean:
            return
        disk.unlink(self.path)
        try:
            self.save_parts()
        except OSError:
            # On a full disk every byte counts.
            with contextlib.suppress(OSError):
                disk.unlink(self.path)
            raise

    def save_parts(self) -> None:
        cdef uint32_t check
        cdef int i
        cdef Shard* shard
        head = [HEAD.pack(MAGIC, VERSION, self.count)]
        for i in range(SHARDS):
            head.append(struct.pack("<II", self.shards[i].capacity, self.shards[i].count))
        part = b"".join(head)
        check = crc32c(part)
        parts = [part]
        size = len(part)
        for i in range(SHARDS):
            shard = &self.shards[i]
            if shard.capacity:
                check = crc32c_of(check, <uint8_t*> shard.slots, shard.capacity * SLOT_BYTES)
                parts.append((<const char*> shard.slots)[:shard.capacity * SLOT_BYTES])
                size += shard.capacity * SLOT_BYTES
            if size >= PIECE:
                disk.append(self.path, b"".join(parts))
                parts = []
                size = 0
        parts.append(struct.pack("<I", check))
        disk.append(self.path, b"".join(parts))

    def load(self) -> None:
        size = disk.size(self.path) if disk.exists(self.path) else 0
        if size < HEAD.size + 4:
            raise IndexDamaged(f"{self.path} is missing or too short")
        magic, version, wanted = HEAD.unpack(disk.read_part(self.path, 0, HEAD.size))
        if magic != MAGIC or version not in (1, VERSION):
            raise IndexDamaged(f"{self.path} does not begin like a saved index")
        check = self.load_entries(size, wanted) if version == 1 else self.load_parts(size, wanted)
        if struct.pack("<I", check) != disk.read_part(self.path, size - 4, 4):
            raise IndexDamaged(f"{self.path} has a wrong checksum")

    def load_parts(self, uint64_t size, uint64_t wanted) -> int:
        """Reads each part to its former place, in one read. Returns the CRC."""
        cdef const uint32_t* table
        cdef uint64_t slots = 0
        cdef uint64_t entries = 0
        cdef uint32_t check
        cdef int i
        cdef Shard* shard
        cdef File* file
        cdef Op op
        head = disk.read_part(self.path, 0, HEAD.size + TABLE_BYTES)
        check = crc32c(head)
        if len(head) < HEAD.size + TABLE_BYTES:
            raise IndexDamaged(f"{self.path} has {size} bytes, which is not what it should have")
        table = <const uint32_t*> (<const char*> head + <size_t> HEAD.size)
        for i in range(SHARDS):
            if table[2 * i + 1] > table[2 * i]:
                raise IndexDamaged(f"{self.path} counts more in a part than it has room for")
            slots += table[2 * i]
            entries += table[2 * i + 1]
        if size != len(head) + slots * SLOT_BYTES + 4 or entries != wanted:
            raise IndexDamaged(f"{self.path} has {size} bytes, which is not what it should have")
        memset(&op, 0, sizeof(Op))
        file = op.file = file_new(self.path)
        try:
            op.kind = OP_OPEN
            run_op(&op)
            op.offset = len(head)
            op.kind = OP_READ
            for i in range(SHARDS):
                shard = &self.shards[i]
                if not table[2 * i] or op.error:
                    continue
                op.length = <size_t> table[2 * i] * SLOT_BYTES
                shard.slots = <Location*> malloc(op.length)
                if shard.slots == NULL:
                    raise MemoryError("no memory for a location index")
                shard.capacity = table[2 * i]
                shard.count = table[2 * i + 1]
                op.data = <uint8_t*> shard.slots
                with nogil:
                    run_op(&op)
                    if op.error == 0 and op.done == op.length:
                        # While it is in the processor's cache.
                        check = crc32c_of(check, op.data, op.length)
                op.offset += op.length
            if op.error:
                raise OSError(op.error, os.strerror(op.error), self.path)
        finally:
            file_free(file)
        self.count = entries
        self.memory = slots * SLOT_BYTES
        return check

    def load_entries(self, uint64_t size, uint64_t wanted) -> int:
        """The form of version 1: one entry behind the other. Returns the CRC."""
        cdef uint32_t check
        cdef size_t at
        cdef const uint8_t* slots
        cdef Location* entry
        if size != HEAD.size + wanted * SLOT_BYTES + 4:
            raise IndexDamaged(f"{self.path} has {size} bytes, which is not what it should have")
        self.expect(wanted)
        check = crc32c(disk.read_part(self.path, 0, HEAD.size))
        offset = HEAD.size
        while offset < size - 4:
            part = disk.read_part(self.path, offset, min(PIECE, size - 4 - offset))
            check = crc32c(part, check)
            slots = part
            for at in range(0, len(part), SLOT_BYTES):
                if (<const Location*> (slots + at)).file:
                    entry = self.put(slots + at)
                    entry[0] = (<const Location*> (slots + at))[0]
            offset += len(part)
        return check
