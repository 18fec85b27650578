from libc.stdint cimport uint8_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.store.bodies.reader cimport BodyReader
from broker.store.bodies.store cimport BodyStore
from broker.store.index.number_table cimport NumberTable
from broker.store.log.sealed cimport Sealed
from broker.store.log.segments cimport Segment


# What QueueStore.peek returns.
cdef enum:
    EMPTY = 0
    FOUND = 1
    WAIT = 2


cdef inline uint64_t place_key(Place* place) noexcept nogil:
    return <uint64_t> place.segment << 32 | place.position


cdef class QueueBodies(Sealed):
    cdef readonly BodyStore bodies   # None: this queue embeds every body
    cdef BodyReader body
    cdef readonly uint64_t references  # living records whose body is shared
    cdef NumberTable taken           # those that were read: place -> id
    cdef uint64_t seen               # place of the one that `peek` showed last
    cdef uint8_t seen_id[16]

    cdef int find_body(self, Message* message) except -1
    cdef int refer(self, Message* message, Segment* segment) except -1
    cdef int note_taken(self, Place* place) except -1
    cdef int drop_taken(self, Place* place) except -1
    cdef int release_unread(self) except -1
