from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.features.history.book cimport Book, Way
from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Exchange
from broker.kernel.message cimport Message
from broker.kernel.recording cimport Recording
from broker.store.streams.store cimport SharedHeaders


cdef class ChannelRecording(Recording):
    cdef Book book
    cdef bytes publisher                 # headers of all its records
    cdef Buffer out
    # What `way` holds for.
    cdef Exchange exchange
    cdef tuple targets
    cdef uint64_t version
    cdef Way way
    # What `out` begins with: `before` bytes that stand before the headers, those of the publisher
    # and `written`, of which `skipped` bytes are left out.
    cdef size_t before
    cdef bytes written
    cdef size_t skipped
    # What a record in the stream has, so that the next ones may leave it out: the headers of the
    # publisher and these, and the size of its body.
    cdef SharedHeaders shared
    cdef bytes shared_fields
    cdef uint32_t shared_size

    cdef int look(self, Exchange exchange, tuple targets) except -1
    cdef bint share(self, Message* message, bytes fields, uint32_t body_length) except -1
    cdef bint put_headers(self, Message* message, bytes fields, uint32_t body_length) except -1
    cdef int put_same(self, const uint8_t* properties, size_t before, bytes fields,
                      size_t skipped) except -1
