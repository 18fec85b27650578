from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.message cimport Place


cdef struct Entry:
    uint64_t key                 # segment << 32 | position
    uint32_t length
    uint32_t body_length


cdef class Requeued:
    cdef Entry* entries
    cdef uint32_t capacity
    cdef readonly uint32_t count

    cdef int push(self, Place* place) except -1
    cdef bint first_is(self, uint32_t segment, uint32_t position) noexcept
    cdef void first(self, Place* place) noexcept
    cdef void pop(self) noexcept
