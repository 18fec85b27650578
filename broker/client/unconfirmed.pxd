from libc.stdint cimport int64_t, uint8_t, uint64_t

from broker.client.measuring cimport Histogram


cdef class Unconfirmed:
    cdef readonly uint64_t next   # sequence number of the next publish
    cdef readonly uint64_t base   # all below it are settled
    cdef readonly uint64_t count  # published and not settled
    cdef readonly uint64_t acked
    cdef readonly uint64_t nacked
    cdef readonly list refused    # sequence numbers that were nacked; the reader clears it
    cdef Histogram histogram
    cdef uint8_t* settled         # a ring of flags
    cdef int64_t* sent_ns         # a ring of times, if there is a histogram
    cdef uint64_t mask

    cdef uint64_t publish(self) except 0
    cdef int settle(self, uint64_t tag, bint multiple, bint ack) except -1
    cdef int grow(self) except -1
