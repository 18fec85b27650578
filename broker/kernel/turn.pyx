# cython: language_level=3
"""The work that is left for the end of a turn of the loop.

A caller that received bytes or acks touches the queues and connections concerned. At the end of the
turn every touched queue delivers, then the persister may start a round, then every touched
connection writes once. A method that reads a queue before that makes it deliver first
(`deliver_first`), so that it sees the effect of earlier methods of the same chunk.

However many clients there are, a turn of the loop is short: received bytes are parsed for
`TAKE_NS`, and further connections wait in a line for the turns to come, each of which has `LINE_NS`
for it. Queues deliver for `DELIVER_NS`, connections write for `WRITE_NS`, and the remaining ones
are first in the next turn.
"""

import logging
from collections import deque

from libc.stdint cimport int64_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.moderation cimport Moderation
from broker.kernel.reading cimport FLOOD_BYTES, Reading
from broker.kernel.through cimport long_list


log = logging.getLogger("leveret.turn")

# Received at a time from those who come late in a turn: they wait with it for the next one.
cdef enum:
    LATE_BYTES = 4096

# Each is exceeded by one step at most: a chunk, the part of one queue, a write.
cdef enum:
    TAKE_NS = 1000000
    LINE_NS = 500000
    DELIVER_NS = 500000
    WRITE_NS = 500000
    # A few have twice as long: what comes in a turn for four queues goes out in that turn.
    FEW = 16

# Messages that all queues together drop in one turn (expired, over a limit): a new policy may
# concern every message there is.
cdef enum:
    TURN_DROPS = 4096


cdef class Task:
    """Something that can be touched: a queue or a connection."""

    cdef int work(self) except -1:
        raise NotImplementedError


cdef class Turn:
    """The touched queues and connections of one turn.

    `schedule(callback)` is the loop's way to call `run` once, soon; not needed for it while
    `is_awaited`: then the loop looks at `scheduled` whenever it looks at its sockets. `after()` is
    called between queues and connections.
    """

    def __init__(self, schedule=None, after=None):
        self.shares = []
        self.queues = long_list()
        self.connections = long_list()
        self.schedule = schedule
        self.after = after
        self.scheduled = False
        self.drops_left = TURN_DROPS
        self.reading = Reading()
        self.moderation = Moderation()
        self.line = deque()

    cdef int touch_queue(self, Task queue) except -1:
        if not queue.pending:
            queue.pending = True
            self.queues.append(queue)
            if not self.scheduled:
                self.request()
        return 0

    cdef int touch_share(self, Task share) except -1:
        """A channel has room again under the limit that its consumers share. Its turn is before
        that of all queues, so that waiting consumers get the room before messages that were
        published later."""
        if not share.pending:
            share.pending = True
            self.shares.append(share)
            if not self.scheduled:
                self.request()
        return 0

    cdef int share_out(self) except -1:
        """Lets every touched channel give its room to the consumers that wait for it."""
        cdef Task share
        cdef list tasks = self.shares
        self.shares = []
        for share in tasks:
            share.pending = False
            try:
                share.work()
            except Exception:
                log.exception("a channel failed in its turn")
        return 0

    cdef int deliver_first(self, Task queue) except -1:
        """A method reads the queue, or changes its consumers: messages that were published, acked
        or requeued before it in this turn are delivered first. The queue stays touched."""
        if self.shares:
            self.share_out()
        if queue.pending:
            try:
                queue.work()
            except Exception:
                log.exception("a queue failed in its turn")
        return 0

    cdef int touch_connection(self, Task connection) except -1:
        if not connection.pending:
            connection.pending = True
            self.connections.append(connection)
            if not self.scheduled:
                self.request()
        return 0

    cdef int request(self) except -1:
        """The turn has to end soon. The loop is asked, unless it looks at `scheduled` itself."""
        self.scheduled = True
        if not self.is_awaited:
            self.schedule(self.run)
        return 0

    def wake(self):
        """Makes sure that a turn ends soon, for example because the persister has something to
        do."""
        if not self.scheduled:
            self.request()

    cpdef run(self):
        """Ends the turn. A task that fails is logged and does not keep the others from their
        work."""
        cdef list tasks
        cdef list left
        cdef object last
        cdef uint64_t began = clock.monotonic_ns()
        cdef uint64_t now
        self.began_ms = clock.at(<int64_t> began)
        self.scheduled = False
        self.drops_left = TURN_DROPS
        # Tasks touched while this runs belong to the next turn: a queue with a long backlog must
        # not hold the loop.
        if self.shares:
            self.share_out()
        if self.queues:
            tasks = self.queues
            self.queues = long_list()
            left = self.work_through(tasks, DELIVER_NS, "a queue failed in its turn")
            if left:
                left.extend(self.queues)
                self.queues = left
                self.wake()
        last = self.after()
        if self.connections:
            tasks = self.connections
            self.connections = long_list()
            left = self.work_through(tasks, WRITE_NS, "a connection failed in its turn")
            if left:
                left.extend(self.connections)
                self.connections = left
                self.wake()
        if last is not None:
            last()
        if not self.line_scheduled:
            self.taken_ns = 0
        now = clock.monotonic_ns()
        if self.is_sliced:
            self.reading.end_turn(now)
            if self.reading.line:
                self.read_on()
        self.moderate(began, now)

    cdef int read_on(self) except -1:
        """Lets connections with publishes take their next chunk, as far as there is credit."""
        cdef Reading reading = self.reading
        cdef object callback = reading.next_in_line()
        while callback is not None:
            try:
                callback()
            except Exception:
                log.exception("a connection failed in its turn")
            callback = reading.next_in_line()
        if reading.line:
            self.wake()               # which brings the next credit
        return 0

    cdef list work_through(self, list tasks, uint64_t length, str failed):
        """Lets tasks work for `length` ns, the first in any case. Returns the list with
        the others, which stay touched: a copy would look at each of 100,000 queues, which takes
        milliseconds, and so would a walk of the collector over that."""
        cdef Task task
        cdef size_t at = 0
        cdef uint64_t began = clock.monotonic_ns()
        for task in tasks:
            if at and self.is_sliced and clock.monotonic_ns() - began >= (
                    length if at >= FEW else 2 * length):
                del tasks[:at]
                return tasks
            at += 1
            task.pending = False
            try:
                task.work()
            except Exception:
                log.exception(failed)
        return None

    cdef bint is_late(self) noexcept:
        """Whether what comes now is not to be taken apart in this turn."""
        return self.is_sliced and self.taken_ns >= TAKE_NS

    cdef bint is_late_after(self, uint64_t more) noexcept:
        """The same, if this many ns more were spent."""
        return self.is_sliced and self.taken_ns + more >= TAKE_NS

    @property
    def late(self):
        return self.is_late()

    cdef size_t offer(self) noexcept:
        """Bytes to receive at a time."""
        if self.is_late():
            return LATE_BYTES
        return FLOOD_BYTES if self.reading.is_over() else self.reading.offered

    @property
    def offered(self):
        """The same."""
        return self.offer()

    def spend(self, uint64_t nanoseconds):
        """So much of this turn was spent on what a connection sent."""
        self.taken_ns += nanoseconds

    def when_there_is_time(self, callback):
        """Calls `callback()`, which may take a millisecond: now, or after the waiting ones if this
        turn has no time left. Many clients may request this in one turn."""
        cdef uint64_t began
        if self.is_late():
            self.wait_in_line(callback)
            return
        began = clock.monotonic_ns()
        callback()
        self.taken_ns += clock.monotonic_ns() - began
        if self.is_sliced:
            self.wake()           # and the next turn has its time again

    def next_in_line(self, callback):
        """Calls `callback()` in a later turn, after those that wait already."""
        self.wait_in_line(callback)

    cdef int wait_in_line(self, callback) except -1:
        self.line.append(callback)
        if not self.line_scheduled:
            self.line_scheduled = True
            self.schedule(self.serve_line)
        return 0

    def serve_line(self):
        """Calls the waiting ones, each once, while there is time; the first in any case."""
        cdef Py_ssize_t count = len(self.line)
        cdef uint64_t began = clock.monotonic_ns()
        cdef uint64_t spent = 0
        self.taken_ns = 0
        while count and (spent < LINE_NS or not self.is_sliced):
            count -= 1
            try:
                self.line.popleft()()
            except Exception:
                log.exception("a connection failed in its turn")
            spent = clock.monotonic_ns() - began
            self.taken_ns = spent
        # Who comes alone must not wait behind a thousand that stand in line.
        self.taken_ns = 0
        self.line_scheduled = False
        if self.line:
            self.line_scheduled = True
            self.schedule(self.serve_line)

    cdef void moderate(self, uint64_t began, uint64_t now) noexcept:
        """Says how long the loop may sleep, so that packets gather (`broker.kernel.moderation`)."""
        self.pause_ns = 0
        if self.is_coalesced or self.reading.line:
            # They gather without a sleep, and say nothing of what one would bring; or publishers
            # wait for their credit, and consumers for what follows.
            self.is_coalesced = False
            self.moderation.slept(now)
        else:
            self.pause_ns = self.moderation.pause(
                began, now, self.frames, self.chunks, self.octets)
        self.frames = self.chunks = self.octets = 0
