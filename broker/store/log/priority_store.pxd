cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.store.log.contracts cimport MessageStore
from broker.store.log.queue_store cimport QueueStore


cdef enum:
    LEVEL_SHIFT = 24             # a segment's number: the level, below it the number in the level
    BITMAP_WORDS = 4             # of 64 levels each


@cython.final
cdef class Level:
    cdef QueueStore store
    cdef uint32_t priority
    cdef int64_t deadline        # of the first ready message; 0 = not known
    cdef int64_t deadline_ttl    # the queue's TTL that it was reckoned with
    cdef uint64_t mark           # see PriorityStore.end; 0 for a level that was not used then


cdef class PriorityStore(MessageStore):
    cdef uint32_t max_priority
    cdef uint32_t next_number    # in a level: none of those from here on was ever given
    cdef list levels             # by priority; None until a message of that priority comes
    cdef uint64_t occupied[BITMAP_WORDS]     # levels with ready messages
    cdef Level kept              # the level whose next messages stay in memory for consumers

    cdef Level level(self, uint32_t priority)
    cdef Level level_of(self, Place* place)
    cdef int highest(self) noexcept
    cdef int lowest(self) noexcept
    cdef void without(self, Level level) noexcept
    cdef void again(self, Level level) noexcept


cdef uint32_t priority_of(Message* message) noexcept
