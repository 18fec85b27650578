from libc.stdint cimport uint64_t

from broker.kernel.message cimport Message, Place
from broker.queues.confirming cimport ConfirmingQueue
from broker.queues.dying cimport Dying


cdef enum:
    REASON_COUNT = 4                     # of `dying.REASONS`


cdef class DeadLetteringQueue(ConfirmingQueue):
    cdef uint64_t[REASON_COUNT] given_up   # without a dead-letter exchange
    cdef uint64_t[REASON_COUNT] lettered   # handed over to one
    cdef uint64_t[REASON_COUNT] unrouted   # there is one, but no queue behind it
    cdef uint64_t[REASON_COUNT] given_up_bytes
    cdef uint64_t[REASON_COUNT] lettered_bytes
    cdef uint64_t[REASON_COUNT] unrouted_bytes
    cdef Dying dying                     # None until the first one dies
    cdef set takers                      # queues that have the oldest dead letter, if one refused
    cdef int buried_result               # of the queues that took it before
    cdef bint buries_again               # a timer will, as a full queue refused it
    cdef readonly uint64_t expired
    cdef uint64_t expired_bytes
    cdef readonly uint64_t dead_lettered

    cdef int drop(self, Message* message, Place* place, int reason) except -1
    cdef bint is_choked(self) noexcept
    cdef bint may_drop(self) except -1
    cdef int bury(self) except -1
    cdef int bury_heads(self) except -1
    cdef int bury_unstored(self, Message* message, int reason) except -1
    cdef bint may_pass_on(self) noexcept
    cdef void forget_takers(self) noexcept
    cdef int bury_message(self, Message* message, int reason) except -1
