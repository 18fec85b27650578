from libc.stdint cimport uint32_t, uint64_t

from broker.features.transfer.wide cimport WideTransfer
from broker.kernel.message cimport Message
from broker.kernel.reached cimport Reached
from broker.queues.classic cimport ClassicQueue
from broker.store.bodies.store cimport BodyStore


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
    PART = 9                     # more of very many queues are to be asked, or to get the message


cdef class HandOver:
    cdef object route
    cdef readonly str refusal            # what refused the last message, and why
    cdef readonly uint64_t handed
    cdef readonly uint64_t handed_bytes
    cdef public uint64_t allowed         # what `handed` may reach for now
    cdef int held                        # queues that answer for the last message later

    cdef bint same_bodies                # source and targets are in one vhost
    cdef BodyStore bodies                # of the targets' vhost
    cdef readonly object targets         # of the message at hand
    cdef bytes exchange
    cdef object body                     # bytes or LargeBody; None: it goes as a reference
    cdef bint is_given                   # to one queue at least
    cdef WideTransfer wide               # the message at hand, if it goes to very many queues
    cdef Reached gone                    # queues of an earlier one that are let go of in steps
    cdef public bint is_kept             # `targets` are asked for, however many they are

    cdef int ask(self, ClassicQueue source, Message* message) except -1
    cdef int find_body(self, ClassicQueue source, Message* message) except -1
    cdef int give(self, Message* message, uint32_t returns, bint has_origin) except -1
    cdef int begin_asking(self, ClassicQueue source, Message* message, found,
                          bytes exchange) except -1
    cdef int ask_more(self, ClassicQueue source, Message* message) except -1
    cdef int begin_giving(self, Message* message, uint32_t returns) except -1
    cdef int give_more(self, bint has_origin) except -1
    cpdef int forget(self) except -1
