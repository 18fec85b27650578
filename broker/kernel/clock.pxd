from libc.stdint cimport int64_t

cdef int64_t now_ms

cdef int64_t monotonic_ns() noexcept nogil
cdef void refresh() noexcept nogil
cdef int64_t at(int64_t monotonic_ns) noexcept nogil
