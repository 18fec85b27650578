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
    cdef uint64_t popped         # highest key that was popped since the last copy
    cdef set gone                # keys taken out of the middle and still among the entries, or None

    cdef int push(self, Place* place) except -1
    cdef bint first_is(self, uint32_t segment, uint32_t position) noexcept
    cdef void first(self, Place* place) noexcept
    cdef void pop(self) noexcept
    cdef void drop_first(self) noexcept
    cdef void drop_entry(self) noexcept
    cdef Requeued copy(self)
    cdef int take(self, uint64_t key) except -1
