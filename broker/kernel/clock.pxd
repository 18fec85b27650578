from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef int64_t now_ms

cdef void refresh() noexcept nogil
cdef int64_t at(int64_t monotonic_ns) noexcept nogil


cdef inline int64_t monotonic_ns() noexcept nogil:
    """Time of the monotonic clock, in ns."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec
