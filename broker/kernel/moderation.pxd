from libc.stdint cimport uint64_t


cdef class Moderation:
    cdef public bint is_awaited  # a round is being written, for which publishers may wait
    cdef readonly int level      # 0: no sleep; else the first one, doubled `level` - 1 times
    cdef int before              # the level that this one is tried against
    cdef bint on_trial
    cdef int trial               # windows left of it
    cdef double tried_gathered   # what the windows of it that count had
    cdef double tried_rate
    cdef int failed              # trials since one succeeded; MOST_FAILED at most
    cdef bint climbs             # the last trial was of a longer sleep, and succeeded
    # The average of the last windows, without those of a trial: frames a turn, and a nanosecond.
    cdef double gathered
    cdef double rate
    cdef double unslept          # `rate` without a sleep; 0: not known
    cdef double promised         # the most that `rate` was, slowly forgotten
    cdef double settled          # `rate` when the last trial was over
    cdef bint is_longest         # the next sleep to try is a shorter one
    cdef int wait                # windows until another is tried
    cdef uint64_t ended          # when the last turn ended, its sleep included
    # In this window, since `opened` (monotonic ns): turns in a hurry, their frames as they count,
    # the sockets these came from, their bytes, all frames, other turns.
    cdef uint64_t opened
    cdef uint64_t turns
    cdef uint64_t frames
    cdef uint64_t chunks
    cdef uint64_t octets
    cdef uint64_t parsed
    cdef uint64_t calm

    cpdef uint64_t pause(
            self, uint64_t began, uint64_t now, uint64_t frames, uint64_t chunks,
            uint64_t octets=*) noexcept
    cdef uint64_t length(self, uint64_t frames) noexcept
    cpdef bint brings_few(self, uint64_t frames) noexcept
    cpdef bint needs_rests(self, uint64_t octets) noexcept
    cpdef void slept(self, uint64_t now) noexcept
    cdef void open_window(self) noexcept
    cdef void judge(self, double gathered, double rate, bint is_enough) noexcept
    cdef int levels(self) noexcept
    cdef void note(self, double gathered, double rate) noexcept
    cdef void choose(self, bint is_enough) noexcept
    cdef void attempt(self, int level) noexcept
    cdef void decide(self, double gathered, double rate) noexcept
    cdef void give_up(self, int level) noexcept
    cdef void rest(self, int level) noexcept
