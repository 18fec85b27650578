from libc.stdint cimport uint16_t, uint64_t

from broker.kernel.contracts cimport Channel
from broker.store.commit.persister cimport Persister
from broker.wire.held_replies cimport HeldReplies
from broker.wire.output cimport Output


cdef class ReplyingChannel(Channel):
    cdef readonly Output output
    cdef readonly object connection
    cdef readonly uint16_t number
    cdef Persister persister
    cdef HeldReplies held                # None while replies go out at once
    cdef public bint acks_unwritten      # replies wait until they are
    cdef public object gets              # None until a basic.get

    cdef int hold_for_acks(self) except -1
    cdef int send_held(self, HeldReplies held) except -1
