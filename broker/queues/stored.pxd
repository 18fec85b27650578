from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.turn cimport Turn
from broker.queues.declared cimport DeclaredQueue
from broker.queues.limits cimport Limits
from broker.store.persister cimport Persister
from broker.store.queue_store cimport QueueStore


cdef class StoredQueue(DeclaredQueue):
    cdef uint32_t features               # zero: the fast path
    cdef readonly Limits limits          # None without any
    cdef Turn turn
    cdef Persister persister
    cdef str parent
    cdef readonly QueueStore store
    cdef bint had_store                  # it may have left a directory
    cdef uint32_t next_segment           # the number to go on with when there is no store
    cdef double idle_since
    cdef uint64_t moved
    cdef readonly uint64_t lean_unacked  # deliveries of lean mode
    cdef readonly uint64_t delivered
    cdef readonly uint64_t delivered_no_ack
    cdef readonly uint64_t got
    cdef readonly uint64_t got_no_ack
    cdef readonly uint64_t got_empty
    cdef readonly uint64_t acked
    cdef readonly uint64_t redelivered
    cdef readonly uint64_t rejected
    cdef readonly uint64_t bytes_out
