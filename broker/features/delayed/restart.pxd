from libc.stdint cimport uint32_t

from broker.store.log.queue_store cimport QueueStore


cdef bint is_live(QueueStore store, uint32_t number, uint32_t position) noexcept
