from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.log.segments cimport QueueDirectory
from broker.store.log.shared_refs cimport SharedRefs


# What MessageStore.peek returns.
cdef enum:
    EMPTY = 0
    FOUND = 1
    WAIT = 2


cdef enum:
    LEVELS = 256                     # of priority, at most; `next_level(LEVELS)` is the highest

# A mark that nothing is behind (`MessageStore.is_behind`).
cdef uint64_t NO_END


cdef class MessageStore(Dirty):
    cdef Persister persister
    cdef QueueDirectory folder
    cdef SharedRefs refs
    cdef object touch                # called when what a reader waited for is there
    cdef readonly bint durable
    cdef readonly bint deleted
    cdef public bint keep            # consumers are there: keep what they read next in memory
    cdef readonly uint64_t ready
    cdef readonly uint64_t ready_bytes
    cdef readonly uint64_t total
    cdef readonly uint64_t total_bytes
    cdef bint any_expires            # recovered messages have an expiration of their own
    cdef list lost                   # places of messages that came back and are unreadable now
    cdef uint32_t lent               # taken out of the middle by a transfer, and not settled

    cdef int append(self, Message* message) except -1
    cdef int append_run(self, const Message* messages, uint32_t count) except -1
    cdef int peek(self, Message* message, Place* place) except -1
    cdef uint32_t peek_run(self, Message* messages, Place* places, uint32_t most) noexcept
    cdef int advance_run(self, const Place* places, uint32_t count, uint64_t size) except -1
    cdef int settle_run(self, Place* places, uint32_t count) except -1
    cdef int resolve(self, Message* message, Place* place) except -1
    cdef int find_body(self, Message* message) except -1
    cdef int advance(self, Place* place) except -1
    cdef int settle(self, Place* place) except -1
    cdef int requeue(self, Place* place) except -1
    cdef int read(self, Place* place, Message* message) except -1
    cdef uint64_t end(self) noexcept
    cdef bint is_behind(self, Place* place, uint64_t end) noexcept
    cdef uint32_t count_return(self, Place* place) except? 0
    cdef uint32_t returns_of(self, Place* place) except? 0
    cdef int next_level(self, int above) noexcept
    cdef int peek_at(self, int level, Message* message, Place* place) except -1
    cdef int look_at(self, int level, Message* message) except -1
    cdef bint first_place(self, Place* place) noexcept
    cdef int peek_least(self, Message* message, Place* place) except -1
    cdef int64_t deadline_at(self, int level, int64_t queue_ttl) noexcept
    cdef void note_deadline(self, int level, int64_t queue_ttl, int64_t deadline) noexcept
    cdef list parts(self)
    cdef MessageStore part(self, int level)
    cdef MessageStore part_of(self, uint32_t segment)
    cdef MessageStore part_for(self, Message* message)
    cdef int take_out(self, int level) except -1
    cdef int put_in(self, int level) except -1
    cdef int recovered(self) except -1
    cdef uint32_t unused_number(self) noexcept
    cdef void go_on_from(self, uint32_t number) noexcept
