from libc.stdint cimport uint64_t


# The bound of the receive buffer of a socket that rests, of which the kernel takes twice as much.
# What it offers the client then (NARROW_WINDOW at most) leaves too little for the overhead of small
# packets, even when they are put together: so that it drops none, there is more room in a rest.
cdef enum:
    NARROW = 12288
    NARROW_WINDOW = 20480
    IN_REST = 16384


cdef class Coalescing:
    cdef readonly bint is_on     # the window is narrow, and the socket rests behind short chunks
    cdef readonly uint64_t wide  # bytes that may come before it is narrow; short rests until then
    cdef bint on_trial
    cdef uint64_t length         # of a rest
    cdef double unrested         # bytes a nanosecond that came without rests
    cdef double wanted           # the least with which rests are worth while
    cdef int failed              # trials since rests were worth while; MOST_FAILED at most
    cdef uint64_t again          # when the next trial may begin (monotonic ns)
    cdef uint64_t last           # when the last chunk came, or the rest behind it is over
    # In this window, since `opened` (monotonic ns): all bytes; chunks without rests, and how many
    # of them were small; periods.
    cdef uint64_t opened
    cdef uint64_t octets
    cdef int chunks
    cdef int small
    cdef int periods
    cdef uint64_t burst          # bytes since the last rest
    cdef uint64_t largest        # of the bursts of a trial
    cdef int empty               # bursts behind each other that were only a short chunk
    cdef int poor                # windows behind each other that were not worth while

    cpdef uint64_t rest(
            self, uint64_t now, uint64_t octets, bint is_all, uint64_t offered=*) noexcept
    cpdef uint64_t room(self, uint64_t size) noexcept
    cdef void open_window(self, uint64_t now) noexcept
    cdef void choose(self, uint64_t now) noexcept
    cdef double rate(self, uint64_t now) noexcept
    cdef uint64_t end_period(self, uint64_t now) noexcept
    cdef void judge(self, uint64_t now) noexcept
    cdef void give_up(self, uint64_t now) noexcept
    cdef void stop(self, uint64_t now) noexcept
