from libc.stdint cimport uint32_t, uint64_t


cdef class Coalescing:
    cdef readonly bint is_on     # the window is narrow, and the socket rests behind short chunks
    cdef readonly uint64_t wide  # bytes that may come before it is narrow; short rests until then
    cdef uint64_t size           # the bound of the receive buffer without rests,
    cdef uint64_t narrow         # and when the window is narrow
    cdef bint on_trial
    cdef uint64_t length         # of a rest
    cdef double unrested         # bytes a nanosecond that came without rests
    cdef double wanted           # the least with which rests are worth while
    cdef int failed              # trials since rests were worth while; MOST_FAILED at most
    cdef uint64_t again          # when a window without rests may begin (monotonic ns)
    cdef uint64_t last           # when the last chunk came, or the rest behind it is over
    cdef uint32_t packets        # that had come with the last chunk (modulo 2**32)
    # In this window, since `opened` (monotonic ns): all bytes; chunks without rests, their packets,
    # and how many of them were small; periods.
    cdef uint64_t opened
    cdef uint64_t octets
    cdef int chunks
    cdef uint64_t came
    cdef int small
    cdef int periods
    cdef uint64_t burst          # bytes since the last rest
    cdef uint64_t largest        # of the bursts of a trial
    cdef int empty               # bursts behind each other that were only a short chunk
    cdef int poor                # windows behind each other that were not worth while

    cpdef uint64_t rest(
            self, uint64_t now, uint64_t octets, bint is_all, uint64_t offered=*,
            uint32_t packets=*) noexcept
    cpdef bint asks(self, uint64_t now) noexcept
    cpdef uint64_t room(self) noexcept
    cpdef uint64_t room_in_rest(self) noexcept
    cpdef bint may_grow(self) noexcept
    cdef uint64_t window(self) noexcept
    cdef void open_window(self, uint64_t now) noexcept
    cdef void observe(
            self, uint64_t now, uint64_t octets, bint is_all, uint32_t packets) noexcept
    cdef uint64_t become_narrow(self, uint64_t now, uint64_t octets, uint64_t offered) noexcept
    cdef void choose(self, uint64_t now) noexcept
    cdef double rate(self, uint64_t now) noexcept
    cdef uint64_t end_period(self, uint64_t now) noexcept
    cdef void judge(self, uint64_t now) noexcept
    cdef void give_up(self, uint64_t now) noexcept
    cdef void stop(self, uint64_t now) noexcept
