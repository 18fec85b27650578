from libc.stdint cimport uint32_t


cdef void count_size(uint32_t length) noexcept nogil
