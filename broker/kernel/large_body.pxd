from libc.stdint cimport uint8_t, uint64_t

from broker.kernel.message cimport Message


cdef enum:
    LARGE_BODY = 4 << 20         # from this length on a body is handed on, below it is copied


# Memory that waits to be given back; its first bytes link it to the next.
cdef struct Unused:
    Unused* next
    size_t size


cdef class LargeBody:
    cdef uint8_t* memory
    cdef size_t head                 # bytes in front of the body, for who stores it
    cdef readonly uint64_t length    # of the body
    cdef bint stored                 # a body store has it, with its head: no other may take it

    cdef uint8_t* body(self) noexcept
    cdef size_t size(self) noexcept


cdef LargeBody copy_of(const uint8_t* body, uint64_t length)
cdef body_of(const Message* message)
cdef void set_body(Message* message, body)
cdef void give_back(Unused* memory, size_t size) noexcept
