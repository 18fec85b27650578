from libc.stdint cimport uint16_t, uint32_t, uint64_t

from broker.kernel.contracts cimport Confirmer
from broker.store.commit.persister cimport Persister
from broker.wire.held_confirms cimport HeldConfirms
from broker.wire.output cimport Output


cdef class Confirms(Confirmer):
    cdef Persister persister
    cdef Output output
    cdef uint16_t number                 # of the channel
    cdef uint32_t serial                 # among the broker's channels that publish with confirms
    cdef bint ended                      # the channel is closing: no more confirms are sent
    cdef uint64_t sequence               # of the last publish
    cdef uint64_t settled                # publishes up to here may be acked
    cdef uint64_t told                   # and up to here they are
    cdef object nacked_runs              # [first, last] told above it; None without any
    cdef list early                      # answers to the publish at hand, before it is counted
    cdef int early_parts                 # answers that it waits for beside those of its queues
    cdef HeldConfirms held               # None while all confirms wait for the disk alone
    cdef readonly uint64_t acked
    cdef readonly uint64_t nacked

    cdef int publish(self, int held, int answer) except -1
    cdef int publish_run(self, uint32_t count, int answer) except -1
    cdef int hold(self, int held, bint waits, bint rejected) except -1
    cdef int nack(self) except -1
    cdef uint64_t take_nacked(self, uint64_t last) except? 0
    cdef int write_held(self) except -1
