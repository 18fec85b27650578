from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.message cimport Message
from broker.wire.delivering cimport DeliveringChannel
from broker.wire.held_confirms cimport HeldConfirms


cdef class ConfirmingChannel(DeliveringChannel):
    cdef readonly bint confirm_mode
    cdef uint64_t sequence               # of the last publish
    cdef uint64_t settled_sequence       # publishes up to here may be acked
    cdef uint64_t told_sequence
    cdef object nacked                   # runs [first, last] told above it; None without any
    cdef uint32_t serial                 # among the broker's channels that publish with confirms
    cdef list early                      # answers to the publish at hand, before it is counted
    cdef HeldConfirms held_confirms      # None while all confirms wait for the disk alone
    cdef readonly uint64_t confirmed
    cdef readonly uint64_t refused       # nacked

    cdef int hold_confirm(self, int held, bint waits, bint rejected) except -1
    cdef int refuse(self) except -1
    cdef uint64_t take_nacked(self, uint64_t last) except? 0
    cdef int write_held(self) except -1
    cdef int write_return(self, Message* message) except -1
