# cython: language_level=3
"""A pair of Bloom filters over the ids of an index: a cheap, certain "not in it".

Entries cannot be removed from a filter, so removed ones fill it up. When more than 60 % of the
capacity were added and more than 30 % removed since the last rotation, a second filter is filled
from the index and replaces the first. Meanwhile additions go to both filters and look-ups to the
first, so there is never a false negative. The second filter has memory only during a rotation.

More entries than the capacity cause more false positives and no other error.
"""

import math
import struct

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from broker.kernel.checksum import crc32c
from broker.store.index.location cimport Location, hash_of


cdef extern from * nogil:
    """
    static inline uint64_t scaled(uint64_t hash, uint64_t range) {
        return (uint64_t)(((unsigned __int128)hash * range) >> 64);
    }
    """
    uint64_t scaled(uint64_t hash, uint64_t range)


cdef enum:
    HASHES = 7                   # the best number for one wrong answer in a hundred

WRONG_ANSWERS = 0.01
SEED = 0x6C65766572657421
ADDED = 60                       # per cent of the capacity
REMOVED = 30
HEAD = struct.Struct("<4sIQQQQQQ")
MAGIC = b"LVRF"
VERSION = 1


def bits_for(capacity: int) -> int:
    """Bits of a filter that gives one wrong answer in a hundred at this many entries."""
    return math.ceil(-capacity * math.log(WRONG_ANSWERS) / math.log(2) ** 2)


cdef class RotatingBloom:
    """Ids are 16 bytes. `capacity` is the number of entries at which one question in a hundred
    about an id that is not there is answered with "maybe"."""

    def __cinit__(self, uint64_t capacity=1000000, uint64_t seed=SEED):
        self.capacity = capacity
        self.seed = seed
        self.filter_bytes = (bits_for(capacity) + 7) // 8
        self.active = <uint8_t*> calloc(1, self.filter_bytes)
        if self.active == NULL:
            raise MemoryError(f"no memory for a Bloom filter of {self.filter_bytes} bytes")

    def __dealloc__(self):
        free(self.active)
        free(self.next)

    @property
    def rotating(self) -> bool:
        return self.next != NULL

    @property
    def memory(self) -> int:
        """Bytes of the filter, or of both while it rotates."""
        return self.filter_bytes * (2 if self.next != NULL else 1)

    @property
    def bits(self) -> int:
        """Bits of one filter."""
        return self.filter_bytes * 8

    cdef void mark(self, uint8_t* bits, const uint8_t* id) noexcept nogil:
        cdef uint64_t hash = hash_of(id, self.seed)
        cdef uint64_t step = hash_of(id, ~self.seed) | 1
        cdef uint64_t bit
        cdef int _each
        for _each in range(HASHES):
            bit = scaled(hash, self.filter_bytes << 3)
            bits[bit >> 3] |= 1 << (bit & 7)
            hash += step

    cdef bint marked(self, const uint8_t* bits, const uint8_t* id) noexcept nogil:
        cdef uint64_t hash = hash_of(id, self.seed)
        cdef uint64_t step = hash_of(id, ~self.seed) | 1
        cdef uint64_t bit
        cdef int _each
        for _each in range(HASHES):
            bit = scaled(hash, self.filter_bytes << 3)
            if not bits[bit >> 3] >> (bit & 7) & 1:
                return False
            hash += step
        return True

    def may_hold(self, bytes id) -> bool:
        """False: the id is not there. True: it may be."""
        return self.marked(self.active, id)

    def add(self, bytes id) -> None:
        """An entry that was not there before."""
        self.adds += 1
        self.mark(self.active, id)
        if self.next != NULL:
            self.mark(self.next, id)

    def add_rows(self, bytes rows) -> int:
        """Entries that were not there before, as `Location` rows. Returns how many."""
        cdef const Location* each = <const Location*> <const char*> rows
        cdef size_t i
        cdef size_t count = <size_t> len(rows) // sizeof(Location)
        for i in range(count):
            self.mark(self.active, each[i].id)
            if self.next != NULL:
                self.mark(self.next, each[i].id)
        self.adds += count
        return count

    def remove(self) -> bool:
        """An entry went. Whether it is time to rotate."""
        self.removes += 1
        return (self.next == NULL and self.adds * 100 > self.capacity * ADDED
                and self.removes * 100 > self.capacity * REMOVED)

    def begin_rotation(self) -> None:
        """From now on additions go to the second filter, too; entries that are in the index already
        are added by `fold_in`."""
        if self.next != NULL:
            return
        self.next = <uint8_t*> calloc(1, self.filter_bytes)
        if self.next == NULL:
            raise MemoryError(f"no memory for a Bloom filter of {self.filter_bytes} bytes")
        self.adds -= min(self.adds, self.removes)
        self.removes = 0

    def fold_in(self, ids) -> None:
        """Ids of the index, for the second filter."""
        for id in ids:
            self.mark(self.next, <bytes> id)

    def end_rotation(self) -> None:
        """Every id was folded in: the second filter takes over."""
        free(self.active)
        self.active = self.next
        self.next = NULL
        self.rotations += 1

    def dump(self) -> bytes:
        """The active filter with its counters, for `load`."""
        head = HEAD.pack(MAGIC, VERSION, self.capacity, self.seed, self.adds, self.removes,
                         self.rotations, self.false_positives)
        data = head + (<const char*> self.active)[:self.filter_bytes]
        return data + struct.pack("<I", crc32c(data))

    @staticmethod
    def load(bytes data):
        """A filter that `dump` gave; None if the bytes are not sound."""
        if len(data) < HEAD.size + 4 or data[:4] != MAGIC:
            return None
        end = len(data) - 4
        if crc32c(data[:end]) != struct.unpack_from("<I", data, end)[0]:
            return None
        _, version, capacity, seed, adds, removes, rotations, wrong = HEAD.unpack_from(data)
        if version != VERSION:
            return None
        cdef RotatingBloom bloom = RotatingBloom(capacity, seed)
        if len(data) != HEAD.size + bloom.filter_bytes + 4:
            return None
        cdef const char* bits = data
        memcpy(bloom.active, bits + <size_t> HEAD.size, bloom.filter_bytes)
        bloom.adds = adds
        bloom.removes = removes
        bloom.rotations = rotations
        bloom.false_positives = wrong
        return bloom
