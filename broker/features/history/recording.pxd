from libc.stdint cimport uint8_t, uint64_t

from broker.features.history.book cimport Book, Way
from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Exchange
from broker.kernel.message cimport Message
from broker.kernel.recording cimport Recording


cdef class ChannelRecording(Recording):
    cdef Book book
    cdef bytes publisher                 # headers of all its records
    cdef Buffer out
    # What `way` holds for.
    cdef Exchange exchange
    cdef tuple targets
    cdef uint64_t version
    cdef Way way
    # What `out` begins with: `before` bytes that stand before the headers, and `written`.
    cdef size_t before
    cdef bytes written

    cdef int look(self, Exchange exchange, tuple targets) except -1
    cdef int put_headers(self, Message* message, bytes fields) except -1
    cdef int put_same(self, const uint8_t* properties, size_t before, bytes fields) except -1
