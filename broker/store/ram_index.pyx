# cython: language_level=3
"""The location index in memory: open addressing, 32 bytes a slot, 40 to 50 bytes an entry.

The table is cut into 4,096 parts by the hash, and each part grows and shrinks by itself: with ten
million entries the longest pause is the rehash of 2,500 slots.
"""

import struct

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from broker.kernel.checksum import crc32c
from broker.store import disk
from broker.store.location cimport Location, hash_of

from broker.store.location_index import REMOVE, IndexDamaged

cdef enum:
    SHARDS = 4096
    SHARD_BITS = 12
    SLOT_BYTES = 32
    FIRST = 8                    # slots of a part with one entry
    FULL = 80                    # per cent of the slots, then the part grows by a quarter
    EMPTY_ENOUGH = 30            # per cent, then it shrinks to half


cdef packed struct Move:
    uint8_t id[16]
    uint32_t file
    uint32_t offset
    uint32_t new_offset


MAGIC = b"LVRX"
VERSION = 1
HEAD = struct.Struct("<4sIQ")
PIECE = 1 << 20


cdef inline uint32_t home(const uint8_t* id, uint32_t capacity) noexcept nogil:
    return <uint32_t> ((<uint64_t> <uint32_t> hash_of(id, 0) * capacity) >> 32)


cdef class RamIndex:
    """Implements `broker.store.location_index.LocationIndex`. `clean`: the entries that `close`
    saved are taken up. Raises IndexDamaged if they are not sound."""

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

    def get(self, const uint8_t[::1] id):
        cdef Location* found = self.find(&id[0])
        return None if found == NULL else (<const char*> &found.file)[:16]

    def refer(self, const uint8_t[::1] id) -> bool:
        cdef Location* found = self.find(&id[0])
        if found == NULL:
            return False
        found.references += 1
        return True

    def apply(self, batch) -> None:
        cdef Location* entry
        cdef bytes id, value
        for operation, id, value in batch:
            if operation == REMOVE:
                self.remove(id)
            else:
                entry = self.put(id)
                memcpy(&entry.file, <const char*> value, 16)

    def move(self, const uint8_t[::1] moves, uint32_t file) -> int:
        """See `broker.store.location_index.move`."""
        cdef Location* entry
        cdef const Move* row
        cdef Py_ssize_t at
        cdef uint64_t moved = 0
        for at in range(0, moves.shape[0], sizeof(Move)):
            row = <const Move*> &moves[at]
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
        """There is nothing behind it."""

    def step(self) -> bool:
        """There is no work that was put off."""
        return False

    def figures(self) -> dict:
        return {"backend": self.backend, "entries": self.count, "memory": self.memory,
                "lookups": 0, "bloom": None}

    def close(self, bint clean) -> None:
        """Saves the entries if `clean`."""
        cdef uint32_t check, at
        cdef int i
        cdef Shard* shard
        if not clean:
            return
        disk.unlink(self.path)
        part = HEAD.pack(MAGIC, VERSION, self.count)
        check = 0
        parts = [part]
        size = len(part)
        for i in range(SHARDS):
            shard = &self.shards[i]
            for at in range(shard.capacity):
                if shard.slots[at].file:
                    parts.append((<const char*> &shard.slots[at])[:SLOT_BYTES])
                    size += SLOT_BYTES
            if size >= PIECE:
                part = b"".join(parts)
                check = crc32c(part, check)
                disk.append(self.path, part)
                parts = []
                size = 0
        part = b"".join(parts)
        check = crc32c(part, check)
        disk.append(self.path, part + struct.pack("<I", check))

    def load(self) -> None:
        cdef uint64_t wanted
        cdef uint32_t check = 0
        cdef size_t at
        cdef const uint8_t* slots
        cdef Location* entry
        if not disk.exists(self.path) or disk.size(self.path) < HEAD.size + 4:
            raise IndexDamaged(f"{self.path} is missing or too short")
        # A piece holds whole slots: the head is read with the first one.
        size = disk.size(self.path)
        _, _, wanted = HEAD.unpack(disk.read_part(self.path, 0, HEAD.size))
        if size != HEAD.size + wanted * SLOT_BYTES + 4:
            raise IndexDamaged(f"{self.path} has {size} bytes, which is not what it should have")
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
        if struct.pack("<I", check) != disk.read_part(self.path, size - 4, 4):
            raise IndexDamaged(f"{self.path} has a wrong checksum")
