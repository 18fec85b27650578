from libc.stdint cimport uint8_t, uint64_t

from broker.features.history.book cimport Book
from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Exchange
from broker.kernel.message cimport Message
from broker.kernel.recording cimport Recording


cdef class ChannelRecording(Recording):
    cdef Book book
    cdef str user
    cdef str connection
    cdef Buffer out
    # What the next fields hold for.
    cdef Exchange exchange
    cdef tuple targets
    cdef uint64_t version
    cdef int level
    cdef tuple places                    # the queues whose places are written, too; None: of none
    cdef list fields                     # headers in front of the message's own, by outcome
    # What `out` begins with: so many bytes before the headers, and these headers.
    cdef size_t before
    cdef bytes written

    cdef int look(self, Exchange exchange, tuple targets) except -1
    cdef int put_headers(self, Message* message, bytes fields) except -1
    cdef int put_same(self, const uint8_t* properties, size_t before, bytes fields) except -1
