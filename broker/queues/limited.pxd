from libc.stdint cimport int64_t

from broker.kernel.message cimport Message
from broker.queues.dead_lettering cimport DeadLetteringQueue
from broker.queues.refusals cimport Refusals


cdef class LimitedQueue(DeadLetteringQueue):
    cdef readonly Refusals refusals      # None until a publish was refused
    cdef object expiry_timer
    cdef int64_t expiry_at               # deadline that the timer waits for, ms of our clock

    cdef bint is_full(self, Message* message) noexcept
    cdef int make_room(self, Message* message) except -1
    cdef int drop_heads(self) except -1
    cdef int shed(self) except -1
    cdef int64_t message_ttl(self) noexcept
    cdef bint is_expired(self, Message* message) noexcept
    cdef int expire_at_once(self, Message* message) except -1
    cdef int expire(self) except -1
    cdef int64_t expire_level(self, int level) except -1
