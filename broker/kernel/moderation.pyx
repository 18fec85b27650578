# cython: language_level=3
"""Whether the loop sleeps for a moment behind its turns, so that small packets gather.

When clients flush every publish, turns are short and follow at once, and what the kernel does for
each packet and for each time that the loop is woken is all there is. A sleep of some microseconds
lets packets gather, as network cards moderate their interrupts. But it also makes everyone wait who
waits for an answer. Which of the two it is shows in what comes: a sleep is tried for a window of
turns, and kept if a turn finds so much more that more comes all the time; then a longer one is
tried, and now and then a shorter one. A single turn decides nothing: clients stop now and then. A
loop with time between its turns never sleeps.
"""

cimport cython
from libc.stdint cimport uint64_t


cdef enum:
    SHORT_NS = 80000             # between two turns of a loop that is in a hurry
    LONG_NS = 300000             # a turn with so much to do that nothing has to gather
    FIRST_NS = 100000
    LEVELS = 3                   # 100, 200, 400 microseconds
    TURNS = 32                   # of a window
    LEAST = 4                    # frames a turn, or no sleep is worth while; a publish has three
    LEAST_LONGER = 24            # the same for a sleep that is longer than the first
    ENOUGH = 1500                # frames of a socket a turn: a longer sleep would gain nothing
    MOST = 3000                  # frames of a socket that count: more had gathered otherwise
    # The same while a round is written: a publisher that waits for its confirms sends nothing
    # meanwhile, and what it could send does not gather.
    AWAITED_LEVELS = 1
    AWAITED_ENOUGH = 96
    AWAITED_MOST = 384
    PATIENCE = 64                # windows behind a trial

# A longer sleep is kept if a turn gets this many times the frames of the shorter one.
cdef double WORTH = 1.4


@cython.final
cdef class Moderation:
    """Asked at the end of each turn."""

    cpdef uint64_t pause(
            self, uint64_t began, uint64_t now, uint64_t frames, uint64_t chunks) noexcept:
        """How many ns to sleep after a turn that took from `began` to `now` (monotonic ns) and
        parsed `frames` frames in `chunks` chunks; `slept` is called after the sleep."""
        cdef uint64_t since = began - self.ended
        self.ended = now
        if since >= SHORT_NS or now - began >= LONG_NS:
            # The loop had time, or has no time to sleep.
            self.calm += 1
            if self.calm >= TURNS:
                self.level = 0
                self.on_trial = False
                self.open_window()
            return 0
        self.turns += 1
        self.chunks += chunks
        self.frames += min(frames, (AWAITED_MOST if self.is_awaited else MOST) * chunks)
        if self.turns >= TURNS:
            self.judge(
                <double> self.frames / self.turns,
                self.frames >= (AWAITED_ENOUGH if self.is_awaited else ENOUGH) * self.chunks)
            self.open_window()
        return <uint64_t> FIRST_NS << (min(self.level, self.levels()) - 1) if self.level else 0

    cpdef void slept(self, uint64_t now) noexcept:
        """The sleep is over."""
        self.ended = now

    cdef void open_window(self) noexcept:
        self.turns = self.frames = self.chunks = self.calm = 0

    cdef void judge(self, double gathered, bint is_enough) noexcept:
        """Ends a window with an average of `gathered` frames a turn."""
        if self.level and gathered < LEAST:
            self.rest(0)
        elif self.level > 1 and gathered < LEAST_LONGER:
            self.rest(1)
        elif self.on_trial:
            self.on_trial = False
            if self.level > self.before:
                if gathered < self.gathered * WORTH:
                    self.rest(self.before)
            else:
                self.rest(self.before if gathered * WORTH < self.gathered else self.level)
        elif self.wait > 0:
            self.wait -= 1
        elif self.level and (self.is_longest or self.level >= self.levels() or is_enough):
            self.attempt(self.level - 1, gathered)
        elif self.level < self.levels() and not is_enough:
            self.attempt(self.level + 1, gathered)

    cdef int levels(self) noexcept:
        """How long a sleep may be now; one round in between does not end the longer ones."""
        return AWAITED_LEVELS if self.is_awaited else LEVELS

    cdef void attempt(self, int level, double gathered) noexcept:
        """The next window is with another sleep."""
        self.before = self.level
        self.gathered = gathered
        self.on_trial = True
        self.level = level

    cdef void rest(self, int level) noexcept:
        """Nothing is tried for a while; then a shorter sleep is, or a longer one, in turn."""
        self.on_trial = False
        self.level = level
        self.is_longest = level > 0 and not self.is_longest
        self.wait = PATIENCE
