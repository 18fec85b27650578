from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.store.index.body_census cimport FileSums, ReferenceCounter
from broker.store.index.location cimport Location


# A part of the table that grows by itself, so that growing never takes long.
cdef struct Shard:
    Location* slots
    uint32_t capacity
    uint32_t count


cdef class RamIndex(ReferenceCounter):
    cdef Shard* shards
    cdef str path
    cdef readonly uint64_t count
    cdef readonly uint64_t memory        # bytes of all slots
    cdef FileSums sums                   # while it is rebuilt

    cdef Location* find(self, const uint8_t* id) noexcept
    cdef Location* put(self, const uint8_t* id) except NULL
    cdef int remove(self, const uint8_t* id) except -1
    cdef int resize(self, Shard* shard, uint32_t capacity) except -1
    cdef int drop_dead(self, Shard* shard, uint32_t dead) except -1
