from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel.turn cimport Turn
from broker.queues.declared cimport DeclaredQueue
from broker.queues.limits cimport Limits
from broker.store.commit.persister cimport Persister
from broker.store.log.figures cimport Head
from broker.store.log.queue_store cimport QueueStore


cdef class StoredQueue(DeclaredQueue):
    cdef uint32_t features               # zero: the fast path
    cdef readonly Limits limits          # None without any
    cdef Turn turn
    cdef Persister persister
    cdef str parent
    cdef readonly QueueStore store
    cdef bint had_store                  # it may have left a directory
    cdef uint32_t next_segment           # number of the next segment while there is no store
    cdef double idle_since
    cdef uint64_t moved
    cdef readonly uint64_t lean_unacked  # deliveries of lean mode
    cdef Head head                       # None until its first message is read
    cdef uint64_t transient              # of `published`, where the queue is durable
    cdef uint64_t stored_from            # `published` when it was known to be empty,
    cdef uint64_t transient_from         # and `transient`
    cdef bint recovered                  # messages of an earlier run are there
    cdef readonly uint64_t delivered
    cdef readonly uint64_t delivered_no_ack
    cdef readonly uint64_t got
    cdef readonly uint64_t got_no_ack
    cdef readonly uint64_t got_empty
    cdef readonly uint64_t acked
    cdef readonly uint64_t redelivered
    cdef readonly uint64_t rejected
    cdef readonly uint64_t bytes_out     # of all deliveries and gets; of them:
    cdef uint64_t no_ack_bytes
    cdef uint64_t got_bytes
    cdef uint64_t got_no_ack_bytes
    cdef uint64_t redelivered_bytes
    cdef uint64_t acked_bytes
    cdef uint64_t rejected_bytes

    cdef int persistence(self) except -2
    cdef int64_t now(self) noexcept
    cdef int note_latency(self, int64_t published_at, uint32_t count) except -1
