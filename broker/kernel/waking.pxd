from libc.stdint cimport uint64_t


cdef class Waking:
    cdef public uint64_t frames  # since `opened`
    cdef uint64_t opened         # when this window began (monotonic ns)
    cdef bint early              # sleeps end with the round
    cdef int left                # windows until the next trial
    cdef int windows             # of this trial
    cdef double whole_rate       # frames a nanosecond in those windows, added up,
    cdef double early_rate       # and in those with sleeps that end early

    cpdef bint is_early(self, uint64_t now) noexcept
    cdef void end_window(self, double rate) noexcept
