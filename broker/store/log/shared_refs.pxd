cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.store.bodies.reader cimport BodyReader
from broker.store.bodies.store cimport BodyStore
from broker.store.index.number_table cimport NumberTable
from broker.store.log.segments cimport Segment, Segments


cdef inline uint64_t place_key(Place* place) noexcept nogil:
    return <uint64_t> place.segment << 32 | place.position


@cython.final
cdef class SharedRefs:
    cdef readonly BodyStore bodies   # None: this queue embeds every body
    cdef BodyReader reader
    cdef readonly uint64_t count     # living records whose body is shared
    cdef NumberTable taken           # those that were read: place -> id
    cdef uint64_t seen               # place of the one that was shown last
    cdef uint8_t seen_id[16]

    cdef int refer(self, Message* message, bint durable) except -1
    cdef int find(self, Message* message, uint64_t incarnation, touch) except -1
    cdef void show(self, Place* place, Message* message) noexcept
    cdef int take(self, Place* place, Segments segments) except -1
    cdef int put_back(self, Place* place, Segment* segment) except -1
    cdef int drop(self, Place* place) except -1
    cdef int release_unread(self, Segments segments, then) except -1
    cdef int release_taken(self) except -1
    cdef int rest(self) except -1
    cdef int end(self) except -1
