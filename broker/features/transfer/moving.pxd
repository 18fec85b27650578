from libc.stdint cimport uint32_t, uint64_t

from broker.features.transfer.hand_over cimport HandOver
from broker.features.transfer.rules cimport Rules
from broker.kernel.message cimport Message, Place
from broker.queues.classic cimport ClassicQueue
from broker.queues.dying cimport Dying
from broker.store.log.walk cimport Walk


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
    cdef bint is_doubled                 # a message that some have stays here, too, and its mark
    cdef bint is_giving                  # one message to very many queues, from
    cdef Place place
    cdef readonly uint64_t in_flight     # taken, and their targets not on disk yet
    cdef readonly uint64_t looked
    cdef readonly uint64_t matched

    cdef int step(self) except -1
    cdef int move(self, Message* message, Place* place) except -1
    cdef int moved(self, Message* message, Place* place, int result, int held) except -1
    cdef int passed(self) except -1
    cdef int begin_giving(self, Message* message, Place* place, uint32_t returns) except -1
    cdef int give_more(self) except -1
    cpdef int let_be(self) except -1
    cdef bint is_doubtful(self)
    cdef int tell(self, int event, Place* place) except -1
