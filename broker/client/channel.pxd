from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from broker.client.batch cimport Batch, Entry
from broker.client.unconfirmed cimport Unconfirmed
from broker.kernel.buffer cimport Buffer

cdef enum:
    # The largest frame before connection.tune: section 4.2.3 says 4096, and brokers that announce
    # much send more.
    FIRST_FRAME = 131072
    # Bytes of a frame beside its payload.
    OVERHEAD = 8
    # Bytes of a content header before its properties.
    HEADER_FIXED = 12


cdef class Link:
    cdef readonly Buffer out
    cdef readonly list events
    cdef readonly object closed      # why the connection ended, or None
    cdef list channels               # by number; None where there is none
    cdef list delivered              # consumers that got messages from this chunk
    cdef list confirmed              # channels that got confirms from this chunk
    cdef readonly uint32_t frame_max
    cdef readonly uint64_t body_max

    cdef int tell(self) except -1


cdef inline size_t properties_most(Link link) noexcept:
    """Bytes of properties that fit a frame."""
    return link.frame_max - OVERHEAD - HEADER_FIXED


cdef class ConsumerCore:
    cdef public object owner         # whatever the shell wants to find again
    cdef readonly bytes tag
    cdef readonly Batch batch
    cdef bint is_dirty               # stands in the list of deliveries of this chunk


cdef class ChannelCore:
    cdef readonly Link link
    cdef readonly uint16_t number
    cdef readonly bint is_open
    cdef readonly object closed      # why, or None
    cdef readonly Unconfirmed unconfirmed
    cdef readonly Batch returns      # messages that came back
    cdef readonly list return_texts
    cdef readonly list consumers     # of ConsumerCore
    cdef object waiting              # a deque of tokens that wait for replies, in order
    cdef ConsumerCore last           # of the last delivery
    cdef Batch got                   # the message of a get-ok
    cdef Batch target                # where content is going now, or None
    cdef ConsumerCore receiver
    cdef uint8_t stage
    cdef bint has_confirms

    cdef ConsumerCore find(self, const uint8_t* tag, uint8_t length)
    cdef int settle(self, uint16_t method, uint64_t tag, uint8_t bits) except -1
    cdef const uint8_t* add_names(self, Entry* entry, const uint8_t* p,
                                  const uint8_t* end) except NULL
    cdef int begin_got(self, const uint8_t* p, uint32_t size) except -1
    cdef int begin_returned(self, const uint8_t* p, uint32_t size) except -1
    cdef int deliver(self, const uint8_t* p, uint32_t size) except -1
    cdef int content_header(self, const uint8_t* p, uint32_t size) except -1
    cdef int content_body(self, const uint8_t* p, uint32_t size) except -1
    cdef int finished(self) except -1
    cdef int confirm(self, const uint8_t* p, uint32_t size, bint ack) except -1
    cdef int end(self, object error) except -1
    cdef bytes framed(self, str name, dict arguments)
    cdef int content(self, const uint8_t* method, size_t method_length,
                     const uint8_t* properties, size_t properties_length,
                     const uint8_t* body, size_t body_length) except -1
