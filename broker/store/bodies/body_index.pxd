cimport cython
from libc.stdint cimport uint8_t, uint32_t

from broker.store.bodies.blocks cimport Body
from broker.store.commit.persister cimport Persister
from broker.store.index.body_census cimport ReferenceCounter
from broker.store.index.location cimport Location
from broker.store.index.ram_index cimport RamIndex


@cython.final
cdef class BodyIndex:
    cdef Persister persister
    cdef readonly object index       # None until the store is recovered
    cdef RamIndex ram                # the index, where it is in memory
    cdef ReferenceCounter counter    # while starting, where the references are not known
    cdef list changes                # for an index that is asked in a thread

    cdef bint is_asked(self) noexcept
    cdef bint is_full(self) noexcept
    cdef bint count_recovered(self, const uint8_t* id) except? True
    cdef int add(self, Body* body, uint32_t length) except -1
    cdef uint32_t take(self, const uint8_t* id) except? 0
    cdef bint drop(self, const uint8_t* id, Location* gone) except? True
    cdef Location* find(self, const uint8_t* id) noexcept
