from libc.stdint cimport int64_t, uint64_t

from broker.kernel.moderation cimport Moderation
from broker.kernel.reading cimport Reading


cdef class Task:
    cdef bint pending

    cdef int work(self) except -1


cdef class Turn:
    cdef list shares             # channels that have room to share out among their consumers
    cdef list queues
    cdef list connections
    cdef public object schedule
    cdef public object after
    cdef bint scheduled
    cdef bint is_awaited         # the loop looks at `scheduled` itself
    cdef uint64_t frames         # frames taken apart since the last turn ended
    cdef uint64_t chunks         # chunks that these frames came in
    cdef uint64_t octets         # bytes of these chunks
    cdef bint is_coalesced       # some of them gathered while their socket rested
    cdef int64_t began_ms        # when it began, ms of our clock
    cdef int64_t drops_left      # messages that queues may still drop in this turn
    cdef bint burying            # a queue hands its dead letters over
    cdef int hops                # queues that a message went through on its way to be stored
    cdef uint64_t kept_bytes     # of dead letters that wait without being stored, of all queues
    cdef uint64_t delivered      # by queues to consumers, since the start
    cdef public bint is_sliced   # whether turns are bounded; not while there is no loop
    cdef readonly Moderation moderation  # whether the loop sleeps behind a turn,
    cdef uint64_t pause_ns       # and for how long behind this one
    cdef readonly Reading reading   # how long publishes are read in a turn
    cdef uint64_t taken_ns       # spent on what connections sent, since the last turn
    cdef object line             # callbacks of those who wait for the next turn
    cdef bint line_scheduled

    cpdef run(self)
    cdef int request(self) except -1
    cdef size_t offer(self) noexcept
    cdef void moderate(self, uint64_t began, uint64_t now) noexcept
    cdef int touch_queue(self, Task queue) except -1
    cdef int touch_share(self, Task share) except -1
    cdef int share_out(self) except -1
    cdef int deliver_first(self, Task queue) except -1
    cdef bint is_late(self) noexcept
    cdef bint is_late_after(self, uint64_t more) noexcept
    cdef int wait_in_line(self, callback) except -1
    cdef int read_on(self) except -1
    cdef list work_through(self, list tasks, uint64_t length, str failed)
    cdef int touch_connection(self, Task connection) except -1
