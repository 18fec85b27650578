from libc.stdint cimport int64_t, uint32_t, uint64_t


# Only a connection that floods waits: as much as FLOOD_BYTES of its publishes came at a time, and
# not less than CALM_BYTES since.
cdef enum:
    FLOOD_BYTES = 16384
    CALM_BYTES = 4096


cdef class Reading:
    cdef public unsigned int share       # percent of the time, while consumers take messages
    cdef readonly bint is_limited
    cdef readonly uint64_t offered       # bytes to receive at a time
    cdef int64_t credit                  # ns for which publishes may be read now
    cdef uint64_t credited               # until when it has been given
    cdef uint64_t spent                  # ns of publishes since then
    cdef uint64_t promised               # ns that chunks about to be read will take
    cdef uint64_t chunk_ns               # what one took, on average
    cdef uint64_t seen                   # when the last chunk was parsed, or the turn ended
    cdef uint64_t turnover               # of the prefetches in this window, in thousandths
    cdef uint64_t window                 # when it began
    cdef readonly object line            # callbacks of publishers that wait for credit

    cpdef void spend(self, uint64_t began, uint64_t now, bint publishes) noexcept
    cpdef int wait(self, callback, uint64_t began, uint64_t now) except -1
    cpdef object next_in_line(self)
    cpdef void delivered(self, uint32_t count, uint64_t room) noexcept
    cpdef bint is_over(self) noexcept
    cpdef void end_turn(self, uint64_t now) noexcept
    cdef void judge(self, uint64_t now) noexcept
