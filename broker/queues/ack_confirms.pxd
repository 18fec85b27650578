from libc.stdint cimport uint64_t

from broker.kernel.contracts cimport Origins
from broker.kernel.message cimport Message, Origin, Place
from broker.store.log.contracts cimport MessageStore


cdef enum:
    NOWHERE = -1                         # in place of a number of queues: none has the letter


cdef class AckConfirms:
    cdef Origins origins
    cdef bint holds                      # an origin was stored or handed out
    cdef bint is_unused                  # several queues have it: it is not to be changed
    cdef dict taken                      # place of a delivered message -> (channel, tag)
    cdef uint64_t lean_unacked           # deliveries of lean mode

    cdef bint is_ours(self, Origin* origin) noexcept
    cdef bint is_awaited(self, Message* message) noexcept
    cdef void begin(self, Message* message) noexcept
    cdef object oldest(self, MessageStore store)
    cdef int note_delivery(self, Message* message, Place* place, bint no_ack) except -1
    cdef int note_origin(self, Message* message, Place* place) except -1
    cdef int forget(self, Place* place) except -1
    cdef int resolve_message(self, Message* message, Place* place, bint acked) except -1
    cdef int resolve_place(self, Place* place, bint acked) except -1
    cdef int resolve_key(self, uint64_t key, bint acked) except -1
    cdef int resolve_lost(self, MessageStore store) except -1
    cdef int refuse_taken(self) except -1
    cdef int pass_origin(self, Message* message, Place* place, int result, int parts) except -1
    cdef int settle_lean(self, Place* place, bint acked) except -1


cdef AckConfirms unused_confirms(Origins origins)
cdef void put_lean_place(Origin* origin, bint is_known, Place* place) noexcept
