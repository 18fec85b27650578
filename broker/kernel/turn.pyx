# cython: language_level=3
"""What is left to do before the turn of the loop ends.

Whoever received bytes or acks touches the queues and connections concerned. At the end of the turn
every touched queue delivers, then the persister may start a round, then every touched connection
writes once. A method that looks at a queue before that lets it deliver first (`deliver_first`), so
that it sees what came before it in the same chunk.
"""

import logging

from libc.stdint cimport int64_t, uint64_t

from broker.kernel cimport clock


cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec* now)
    int nanosleep(const timespec* duration, timespec* left)


cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, unsigned long value, ...)
    int PR_SET_TIMERSLACK


log = logging.getLogger("leveret.turn")

# When clients flush every publish, turns are short and follow at once, and the kernel's work per
# packet is all there is. A short sleep then lets packets gather. See `Turn.moderate`.
cdef enum:
    SHORT_NS = 80000             # a turn, or a pause between turns, below this is short
    SLEEP_NS = 50000
    HURRIED_ENOUGH = 8           # short turns in a row before the first sleep
    WORTH_FRAMES = 12            # frames of a turn behind a sleep that made it worth while
    BACK_OFF = -256              # turns without a try when it was not

# Messages that all queues together drop in one turn (expired, over a limit): a new policy may
# concern every message there is.
cdef enum:
    TURN_DROPS = 4096


cdef uint64_t nanoseconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t> now.tv_sec * 1000000000 + <uint64_t> now.tv_nsec


cdef class Task:
    """Something that can be touched: a queue or a connection."""

    cdef int work(self) except -1:
        raise NotImplementedError


cdef class Turn:
    """The touched queues and connections of one turn.

    `schedule(callback)` is the loop's way to call `run` once, soon. `after()` is called between
    queues and connections.
    """

    def __init__(self, schedule=None, after=None):
        self.shares = []
        self.queues = []
        self.connections = []
        self.schedule = schedule
        self.after = after
        self.scheduled = False
        self.drops_left = TURN_DROPS
        # Otherwise the kernel may round a sleep of 50 microseconds up to twice that.
        prctl(PR_SET_TIMERSLACK, 1000)

    cdef int touch_queue(self, Task queue) except -1:
        if not queue.pending:
            queue.pending = True
            self.queues.append(queue)
            if not self.scheduled:
                self.scheduled = True
                self.schedule(self.run)
        return 0

    cdef int touch_share(self, Task share) except -1:
        """A channel has room again under the limit that its consumers share. Its share comes before
        all queues, so that what was published last does not take the room from who waited."""
        if not share.pending:
            share.pending = True
            self.shares.append(share)
            if not self.scheduled:
                self.scheduled = True
                self.schedule(self.run)
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
        """A method looks at the queue, or changes who is served: what was published, acked and
        requeued before it in this turn is delivered before it. The queue stays touched."""
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
                self.scheduled = True
                self.schedule(self.run)
        return 0

    def wake(self):
        """Makes sure that a turn ends soon, for example because the persister has something to
        do."""
        if not self.scheduled:
            self.scheduled = True
            self.schedule(self.run)

    def run(self):
        """Ends the turn. A task that fails is logged and does not keep the others from their
        work."""
        cdef list tasks
        cdef Task task
        cdef uint64_t began = nanoseconds()
        self.began_ms = clock.at(<int64_t> began)
        self.scheduled = False
        self.drops_left = TURN_DROPS
        # Tasks touched while this runs belong to the next turn: a queue with a long backlog must
        # not hold the loop.
        if self.shares:
            self.share_out()
        if self.queues:
            tasks = self.queues
            self.queues = []
            for task in tasks:
                task.pending = False
                try:
                    task.work()
                except Exception:
                    log.exception("a queue failed in its turn")
        self.after()
        if self.connections:
            tasks = self.connections
            self.connections = []
            for task in tasks:
                task.pending = False
                try:
                    task.work()
                except Exception:
                    log.exception("a connection failed in its turn")
        self.moderate(began)

    cdef void moderate(self, uint64_t began) noexcept:
        """Sleeps for a moment when turns are short and follow each other at once, so that the next
        one finds more. Costs nothing when idle, and backs off when sleeping brought no batch, as
        with clients that wait for each answer."""
        cdef uint64_t now = nanoseconds()
        cdef timespec pause
        if self.slept and self.frames < WORTH_FRAMES:
            self.hurried = BACK_OFF
        elif now - began < SHORT_NS and (self.slept or began - self.ended_at < SHORT_NS):
            self.hurried += 1
        else:
            self.hurried = 0
        self.slept = self.hurried >= HURRIED_ENOUGH
        self.frames = 0
        if self.slept:
            self.hurried = HURRIED_ENOUGH
            pause.tv_sec = 0
            pause.tv_nsec = SLEEP_NS
            with nogil:
                nanosleep(&pause, NULL)
            now = nanoseconds()
        self.ended_at = now
