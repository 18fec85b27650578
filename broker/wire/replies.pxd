cimport cython
from libc.stdint cimport uint64_t

from broker.store.commit.persister cimport Persister
from broker.wire.held_replies cimport HeldReplies
from broker.wire.output cimport Output


cdef class Replies:
    cdef Persister persister
    cdef Output output
    cdef HeldReplies held                # None while replies are sent at once
    cdef readonly bint acks_unwritten    # replies wait until they are

    cdef int hold_for_acks(self) except -1
    cdef int send_held(self, HeldReplies held) except -1

    @cython.final
    cdef inline void note_ack(self) noexcept:
        """Something was acknowledged that is on disk: later replies wait until that is written."""
        self.acks_unwritten = True
