from libc.stdint cimport int64_t, uint32_t


cdef struct Candidate:
    uint32_t ms
    uint32_t rank                    # 0: the newest item of the slot
    uint32_t stream
    uint32_t segment
    uint32_t position
    uint32_t size


cdef class Candidates:
    cdef Candidate* rows
    cdef size_t count
    cdef size_t capacity
    cdef bint in_order
    cdef int64_t base
    cdef list incarnations

    cdef bint add(self, uint32_t ms, uint32_t stream, uint32_t segment, uint32_t position,
                  uint32_t size) noexcept nogil
    cdef void sort(self) noexcept nogil
