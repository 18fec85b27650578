from libc.stdint cimport int64_t

cdef int64_t now_ms

cdef void refresh() noexcept nogil
