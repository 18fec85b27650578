from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.features.transfer.rules cimport Rules
from broker.store.log.walk cimport Walk
from broker.kernel.message cimport Message, Place
from broker.queues.classic cimport ClassicQueue
from broker.queues.dying cimport Dying


cpdef enum:
    DONE = 0                     # there is no other message
    MORE = 1                     # the slice is over
    READING = 2                  # a thread has to read or write first
    FULL = 3                     # a target queue refuses more
    UNROUTED = 4                 # the exchange leads the message to no queue
    AT_BOUND = 5                 # progress has to be noted on the disk first
    IN_FLIGHT = 6                # as many as may be wait for the disk
    LOST = 7                     # the shared body is not there any more
    PACED = 8                    # the rate allows no more for now


cdef class HandOver:
    cdef object route
    cdef readonly str refusal            # what refused the last message, and why
    cdef readonly uint64_t handed
    cdef readonly uint64_t handed_bytes
    cdef public uint64_t allowed         # what `handed` may reach for now
    cdef int held                        # queues that answer for the last message later

    cdef bint same_bodies                # source and targets are in one vhost
    cdef readonly object targets         # of the message at hand
    cdef bytes exchange
    cdef bytes body                      # None: it goes as a reference
    cdef bint is_given                   # to one queue at least

    cdef int ask(self, ClassicQueue source, Message* message) except -1
    cdef int give(self, Message* message, uint32_t returns, bint has_origin) except -1


cdef class Mover:
    cdef ClassicQueue source
    cdef readonly Walk walk
    cdef Rules rules
    cdef HandOver hand_over
    cdef bint copies
    cdef uint64_t most
    cdef int bound_level
    cdef uint64_t bound
    cdef object doubtful
    cdef Dying leaving
    cdef bint is_over
    cdef readonly uint64_t in_flight     # taken, and their targets not on disk yet
    cdef readonly uint64_t looked
    cdef readonly uint64_t matched

    cdef int step(self) except -1
    cdef int move(self, Message* message, Place* place) except -1
    cdef bint is_doubtful(self)
    cdef int tell(self, int event, Place* place) except -1
