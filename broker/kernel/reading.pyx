# cython: language_level=3
"""How much of its time the loop reads publishes while consumers take messages.

The sockets of publishers that flood are readable all the time, and consumers get their next
messages when their acks have been read: in turns that read publishes for a millisecond each
consumer gets its prefetch once, and some thousand messages are read for each one that is delivered.

So while consumers take messages from queues that have more, each of their prefetches at least once
in `WINDOW_NS`, publishes are read for a share of the time, 64 KiB at once. What else comes stays in
its socket, and the connection waits in a line for the next credit; acks, and sockets that take
bytes again, find the loop free in between. Consumers that need longer for a prefetch are not
delayed by such turns: they limit no publisher. Nor do consumers without a prefetch: they wait for
no ack, and a turn fills the sockets of those that are fast. And publishers of which little comes at
a time, because they wait for their confirms, never wait in the line.
"""

from collections import deque

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum:
    WINDOW_NS = 4000000
    CREDIT_NS = 100000           # what gathers at most while no publishes come
    DEBT_NS = 1000000            # what is paid back at most: the rest another process had
    # What the loop does for a chunk at most; before that it was idle.
    LOOP_NS = 40000
    LIMITED_BYTES = 64 * 1024    # of smaller chunks, receiving them is most of the cost
    MOST_BYTES = 256 * 1024


cdef uint64_t spent_on(Reading reading, uint64_t began, uint64_t now) noexcept:
    """ns that the loop spent until `now` on what it had seen at `began`, to receive it included."""
    return now - max(reading.seen, began - LOOP_NS)


@cython.final
cdef class Reading:
    """`share`: percent; 100 is no limit. `line`: what `next_in_line` returns, in its order."""

    def __init__(self, unsigned int share=15):
        self.share = share
        self.offered = MOST_BYTES
        self.line = deque()

    cpdef void spend(self, uint64_t began, uint64_t now, bint publishes) noexcept:
        """A chunk that the loop had received at `began` is parsed, or waits. Those of a flood of
        `publishes` count, with what the loop did since the chunk before, to receive them or to let
        their connection wait."""
        cdef uint64_t took = spent_on(self, began, now)
        if publishes:
            self.spent += took
            self.chunk_ns += (<int64_t> took - <int64_t> self.chunk_ns) // 8
        self.seen = now

    cpdef int wait(self, callback, uint64_t began, uint64_t now) except -1:
        """A connection with publishes, which the loop had seen at `began`, waits until publishes
        may be read again."""
        self.spent += spent_on(self, began, now)
        self.seen = now
        self.line.append(callback)
        return 0

    cpdef object next_in_line(self):
        """The callback of who may read now; None: none waits, or the credit is over with the chunks
        that those before are about to take."""
        if not self.line or (
                self.is_limited and <int64_t> (self.spent + self.promised) >= self.credit):
            return None
        self.promised += self.chunk_ns
        return self.line.popleft()

    cpdef void delivered(self, uint32_t count, uint64_t room) noexcept:
        """A queue has delivered and has more; its consumers can take `room` more messages, 0 for
        any number."""
        if room:
            self.turnover += <uint64_t> count * 1000 // room

    cpdef bint is_over(self) noexcept:
        """Whether further publishes wait."""
        return self.is_limited and <int64_t> self.spent >= self.credit

    cpdef void end_turn(self, uint64_t now) noexcept:
        """Gives credit for the time since it was given last."""
        if now - self.window >= WINDOW_NS:
            self.judge(now)
        if self.is_limited:
            self.credit -= <int64_t> self.spent
            self.credit = max(self.credit, <int64_t> -DEBT_NS)
            self.credit += <int64_t> ((now - self.credited) * self.share // 100)
            self.credit = min(self.credit, <int64_t> CREDIT_NS)
        self.credited = self.seen = now
        self.spent = self.promised = 0

    cdef void judge(self, uint64_t now) noexcept:
        """The end of a window: whether its consumers need the limit in the next one."""
        self.is_limited = (
            self.share < 100 and self.turnover * WINDOW_NS >= 1000 * (now - self.window))
        self.window = now
        self.turnover = 0
        self.offered = LIMITED_BYTES if self.is_limited else MOST_BYTES
        if not self.is_limited:
            self.credit = CREDIT_NS
