from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.features.history.book cimport Book, Way
from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Exchange
from broker.kernel.message cimport Message
from broker.kernel.recording cimport Recording
from broker.store.streams.store cimport SharedHeaders


cdef enum:
    WAYS_SHARED = 8              # ways of a publisher whose headers are shared at a time


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
    # What records in the stream have, so that the next ones of the same ways may leave it out: the
    # headers of the publisher and these, and the size of a body.
    cdef SharedHeaders shared[WAYS_SHARED]
    cdef list shared_fields
    cdef uint32_t shared_sizes[WAYS_SHARED]
    cdef int last_way                # of the last message
    cdef int next_place              # for a way that has none

    cdef uint32_t record_alike(self, Message* messages, uint32_t count, bytes fields) except? 0
    cdef int look(self, Exchange exchange, tuple targets) except -1
    cdef int place_of(self, bytes fields) noexcept
    cdef SharedHeaders* share(self, Message* message, bytes fields,
                              uint32_t body_length) except? NULL
    cdef bint put_headers(self, Message* message, bytes fields, uint32_t body_length,
                          size_t skipped) except -1
    cdef int put_same(self, const uint8_t* properties, size_t before, bytes fields,
                      size_t skipped) except -1
