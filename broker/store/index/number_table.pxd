from libc.stdint cimport uint64_t


cdef struct Row:
    uint64_t key                 # 0 = empty
    uint64_t first
    uint64_t second


cdef class NumberTable:
    cdef Row* rows
    cdef uint64_t mask
    cdef readonly uint64_t count

    cdef Row* find(self, uint64_t key) noexcept
    cdef Row* put(self, uint64_t key) except NULL
    cdef void remove(self, Row* row) noexcept
    cdef int resize(self, uint64_t capacity) except -1
