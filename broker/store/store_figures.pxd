from libc.stdint cimport uint64_t

from broker.store.queue_store cimport QueueStore


cdef class Head:
    cdef uint64_t key            # place of the message on disk that was read last; 0 = none
    cdef object timestamp        # its property

    cdef object timestamp_of(self, QueueStore store)


cdef uint64_t size_of(object thing) noexcept
cdef uint64_t memory_of(QueueStore store) noexcept
cdef object in_memory(QueueStore store)
