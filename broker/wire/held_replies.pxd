from libc.stdint cimport uint64_t

from broker.store.commit.persister cimport Persister
from broker.wire.output cimport Output


cdef class HeldReply:
    cdef uint64_t ticket                 # what it waits for
    cdef bint is_open                    # it is not known yet
    cdef bytes data
    cdef object then


cdef class HeldReplies:
    cdef Persister persister
    cdef Output output
    cdef object replies                  # in the order in which they go out
    cdef uint64_t ticket                 # of the last request to wait
    cdef uint64_t over                   # all that was asked for up to this ticket is written
    cdef uint64_t round                  # what the last one waits for: a round,
    cdef uint64_t removals               # and the removals that had begun
    cdef bint records                    # from now on replies wait for messages, too

    cdef int wait(self, release, bint sync, bint records) except -1
    cdef bint covers_now(self) noexcept
    cdef HeldReply add(self, bytes data, then)
    cdef HeldReply reserve(self)
    cdef int fill(self, HeldReply reply, bytes data, then, bint waits) except -1
    cdef bint send(self) except -1
    cdef int forget(self) except -1
