from libc.stdint cimport int64_t


cdef class Capacity:
    cdef int64_t since           # when the stretch of time at hand began, ms of our clock
    cdef int64_t blocked_at      # since when no consumer could take a message; 0 while one can
    cdef int64_t blocked_ms      # of the stretch
    cdef double average          # of the stretches before it

    cdef void block(self) noexcept
    cdef void unblock(self) noexcept
    cdef double share(self) noexcept
