from libc.stdint cimport int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef class Histogram:
    cdef uint64_t* buckets
    cdef readonly uint64_t count
    cdef readonly int64_t highest
    cdef readonly double total

    cdef void add(self, int64_t ns) noexcept
