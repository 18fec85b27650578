from libc.stdint cimport uint64_t


cdef class Moderation:
    cdef public bint is_awaited  # a round is being written, for which publishers may wait
    cdef readonly int level      # 0: no sleep; else the first one, doubled `level` - 1 times
    cdef int before              # the level that this one is tried against
    cdef bint on_trial
    cdef double gathered         # frames a turn in the last window of `before`
    cdef bint is_longest         # the next sleep to try is a shorter one
    cdef int wait                # windows until another is tried
    cdef uint64_t ended          # when the last turn ended, its sleep included
    # In this window: turns in a hurry, their frames, the sockets these came from, other turns.
    cdef uint64_t turns
    cdef uint64_t frames
    cdef uint64_t chunks
    cdef uint64_t calm

    cpdef uint64_t pause(
            self, uint64_t began, uint64_t now, uint64_t frames, uint64_t chunks) noexcept
    cpdef void slept(self, uint64_t now) noexcept
    cdef void open_window(self) noexcept
    cdef void judge(self, double gathered, bint is_enough) noexcept
    cdef int levels(self) noexcept
    cdef void attempt(self, int level, double gathered) noexcept
    cdef void rest(self, int level) noexcept
