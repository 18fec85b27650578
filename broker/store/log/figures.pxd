from libc.stdint cimport int64_t, uint64_t

from broker.store.log.contracts cimport MessageStore
from broker.store.log.queue_store cimport QueueStore


cdef class Head:
    cdef uint64_t key            # place of the message on disk that was read last; 0 = none
    cdef object timestamp        # its property
    cdef uint64_t oldest_key     # the same for `oldest_of`
    cdef int64_t oldest

    cdef object timestamp_of(self, MessageStore store)
    cdef int64_t oldest_of(self, MessageStore store) except -2
    cdef int64_t published_at(self, QueueStore part) except -2


cdef uint64_t size_of(type kind) noexcept
cdef uint64_t memory_of(MessageStore store) noexcept
cdef object in_memory(MessageStore store)
