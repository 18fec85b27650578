from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer
from broker.kernel.message cimport Message
from broker.store.streams.summary cimport Summary


# One header of a message: a field of its table, pointed at.
cdef struct Header:
    const uint8_t* start         # of its name's length
    uint8_t kind                 # AMQP's type letter
    const uint8_t* value         # of a string: its first byte
    uint32_t length              # of the value


# What is left of a message's header table.
cdef struct Fields:
    const uint8_t* next
    const uint8_t* end


cdef void begin_fields(Fields* fields, const uint8_t* properties, uint32_t length) noexcept nogil
cdef bint next_field(Fields* fields, Header* found) noexcept nogil
cdef bint header(const uint8_t* properties, uint32_t length, const char* name, size_t name_length,
                 Header* found) noexcept nogil
cdef int put_offset(Buffer out, Message* message, uint64_t offset) except -1
cdef int note_values(Summary summary, const uint8_t* properties, uint32_t length) except -1
