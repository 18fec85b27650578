from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.store.log.contracts cimport MessageStore
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.segments cimport Segment


cdef class Browse:
    cdef MessageStore store
    cdef int level               # the one at hand; what is above it has been shown
    cdef uint64_t last           # place of the record shown last in it, segment << 32 | position
    cdef uint32_t last_length    # of that record in its segment
    # The place up to which no position can be given again, as it was when that record was shown,
    # and how many tails had been dropped then.
    cdef uint64_t sure
    cdef uint64_t drops
    cdef list returned           # places that came back, behind `last`; None: to be listed again

    cdef int next(self, Message* message, Place* place) except -1
    cdef void interrupt(self) noexcept
    cdef int next_returned(self, QueueStore part, Message* message, Place* place) except -1
    cdef int next_unread(self, QueueStore part, Message* message, Place* place) except -1
    cdef int show(self, QueueStore part, Segment* segment, uint32_t position, bint returned,
                  Message* message, Place* place) except -1
