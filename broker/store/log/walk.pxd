from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.store.log.contracts cimport MessageStore
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.requeued cimport Requeued
from broker.store.log.segments cimport Segment


cdef class Walk:
    cdef readonly MessageStore store
    cdef dict ends               # level -> number of the first segment that came later
    cdef list levels             # not reached yet, the next one last
    cdef bint marks
    cdef readonly int level      # -1 at the end
    cdef readonly uint64_t at    # segment << 32 | position: what lies before it was passed
    cdef Requeued returned       # copy of those that came back to the level; None: not made yet
    cdef bint is_returned        # whether the one at hand came back
    cdef uint32_t length         # of the record at hand
    cdef readonly uint64_t unreadable

    cdef int next(self, Message* message, Place* place) except -1
    cdef void passed(self) noexcept
    cdef int take(self, Message* message, Place* place) except -1
    cdef int put_back(self, Place* place, bint doubled) except -1
    cdef int settle(self, Place* place) except -1
    cdef uint32_t returns_of(self, Place* place) except? 0
    cdef QueueStore part(self)
    cdef int next_returned(self, QueueStore part, Message* message, Place* place) except -1
    cdef int next_unread(self, QueueStore part, Message* message, Place* place) except -1
    cdef int show(self, QueueStore part, Segment* segment, uint32_t position, Message* message,
                  Place* place) except -1
    cdef bint is_marked(self, QueueStore part, Segment* segment, uint32_t position) except -1
