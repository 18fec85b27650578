from libc.stdint cimport uint32_t, uint64_t


cdef struct Entry:
    uint64_t key                 # segment << 32 | position
    uint32_t length


cdef class Requeued:
    cdef Entry* entries
    cdef uint32_t capacity
    cdef readonly uint32_t count

    cdef int push(self, uint32_t segment, uint32_t position, uint32_t length) except -1
    cdef bint first_is(self, uint32_t segment, uint32_t position) noexcept
    cdef uint32_t segment(self) noexcept
    cdef uint32_t position(self) noexcept
    cdef uint32_t length(self) noexcept
    cdef void pop(self) noexcept
