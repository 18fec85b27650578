from libc.stdint cimport uint64_t

from broker.kernel.contracts cimport Consumer
from broker.kernel.message cimport Message, Origin, Place
from broker.queues.consumed cimport ConsumedQueue


cdef enum:
    NOWHERE = -1                         # in `held_letters`: no queue has the letter


cdef class ConfirmingQueue(ConsumedQueue):
    cdef bint holds                      # an origin was stored or handed out
    cdef dict taken                      # place of a delivered message -> (channel, tag)
    cdef int held_letters                # queues that answer for the last letter later
    cdef uint64_t drain_to               # place behind the last message of a purge; 0 = none

    cdef bint is_ours(self, Origin* origin) noexcept
    cdef int note_delivery(self, Message* message, Place* place, bint no_ack) except -1
    cdef int note_origin(self, Message* message, Place* place) except -1
    cdef int resolve_message(self, Message* message, Place* place, bint acked) except -1
    cdef int resolve_place(self, Place* place, bint acked) except -1
    cdef int resolve_key(self, uint64_t key, bint acked) except -1
    cdef int resolve_lost(self) except -1
    cdef int refuse_taken(self) except -1
    cdef int pass_origin(self, Message* message, Place* place, int result) except -1
    cdef bint drain(self) except -1
    cdef int lean_place(self, Origin* origin, bint is_known, Place* place) noexcept
    cdef int deliver_unstored(self, Message* message, bint confirm) except -2
    cdef int deliver_lean(self, Consumer consumer, Message* message, Place* place) except -1
    cdef int settle_lean(self, Place* place, bint acked) except -1
