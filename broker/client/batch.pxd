from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer


cdef struct Entry:
    uint64_t tag                 # delivery tag
    uint64_t body_length
    # Of the exchange's name in the batch's bytes; key, properties and body follow without gaps.
    size_t start
    uint32_t properties_length
    uint16_t code                # of a return
    uint8_t exchange_length
    uint8_t key_length
    bint redelivered


cdef class Batch:
    cdef Buffer bytes
    cdef Entry* entries
    cdef size_t room
    cdef readonly size_t count
    cdef bint is_open            # entries[count] is being received
    cdef uint64_t missing        # bytes of its body that are still to come

    cdef Entry* begin(self) except NULL
    cdef int properties(self, const uint8_t* data, uint32_t length, uint64_t body) except -1
    cdef int body(self, const uint8_t* data, size_t length) except -1
    cdef void abandon(self) noexcept
    cdef void clear(self) noexcept
    cdef void drop_first(self, size_t number) noexcept
    cdef const uint8_t* body_of(self, size_t index) noexcept
