# cython: language_level=3
"""Whether the loop sleeps for a moment behind its turns, so that small packets gather.

When clients flush every publish, turns are short and follow at once, and what the kernel does for
each packet and for each time that the loop is woken is all there is. A sleep of some microseconds
lets packets gather, as network cards moderate their interrupts. But it also makes everyone wait who
waits for an answer. Which of the two it is shows in what comes: a sleep is tried for some windows
of turns, and kept if a turn finds so much more that more comes all the time, and if as much comes
in a second as without it; then a longer one is tried, and now and then a shorter one. A single turn
decides nothing: clients stop now and then. A loop with time between its turns never sleeps. A look
at the sockets that brings what needs no turn yet counts as one.
"""

cimport cython
from libc.stdint cimport uint64_t


cdef enum:
    SHORT_NS = 80000             # between two turns of a loop that is in a hurry
    LONG_NS = 300000             # a turn with so much to do that nothing has to gather
    FIRST_NS = 100000
    FIRST_OF_FEW_NS = 60000      # behind a turn with so few frames that a longer one only delays
    LEVELS = 3                   # 100, 200, 400 microseconds
    LONG_LEVEL = 2               # where a client that flushes all it has may gain by rests
    TURNS = 32                   # of a window
    LEAST = 4                    # frames a turn, or no sleep is worth while; a publish has three
    LEAST_LONGER = 24            # the same for a sleep that is longer than the first
    ENOUGH = 1500                # frames of a socket a turn: a longer sleep would gain nothing
    ENOUGH_OCTETS = 16384        # bytes of a socket a turn: its packets are not small
    MOST = 3000                  # frames of a socket that count: more had gathered otherwise
    # The same while a round is written: a publisher that waits for its confirms sends nothing
    # meanwhile, and what it could send does not gather.
    AWAITED_LEVELS = 1
    AWAITED_ENOUGH = 96
    AWAITED_MOST = 384
    # Windows of a trial, of which the last two count: what had gathered in a longer sleep lasts for
    # a while, and a sender whose socket is full sends larger packets. The first sleep shows at once
    # what it is worth, and more windows with it would cost clients that wait.
    TRIAL = 4
    FIRST_TRIAL = 2
    COUNTED = 2
    SETTLING = 8                 # windows before a still longer sleep is tried
    PATIENCE = 32                # windows behind a trial, twice as many if it failed, and again
    MOST_FAILED = 3

# A longer sleep is kept if a turn gets this many times the frames of the shorter one (a first sleep
# is more for those who wait than half a millisecond instead of a quarter),
cdef double WORTH = 1.4
cdef double LONGER_WORTH = 1.25
# and a second not less than this part of what it has without a sleep. A shorter one that lets more
# come is kept, too.
cdef double AS_MUCH = 0.85
# What the last window counts in the average of those with one sleep.
cdef double SHARE = 0.25
# Frames a nanosecond. Clients that flush as fast as they can send 200,000 messages a second or
# more, of three frames each.
cdef double FLOODED = 0.0003
# How much of what a second had once is forgotten with a window.
cdef double FORGOTTEN = 0.02
# With less than this part of what a second had once, a longer sleep is tried soon; and with this
# many times as much as when the last trial was over.
cdef double LOST = 0.6
cdef double GAINED = 2.0


@cython.final
cdef class Moderation:
    """Asked at the end of each turn."""

    cpdef uint64_t pause(
            self, uint64_t began, uint64_t now, uint64_t frames, uint64_t chunks,
            uint64_t octets=0) noexcept:
        """How many ns to sleep after a turn that took from `began` to `now` (monotonic ns) and
        parsed `frames` frames in `chunks` chunks with `octets` bytes; `slept` is called after the
        sleep."""
        cdef uint64_t since = began - self.ended
        self.ended = now
        if self.opened == 0:
            self.opened = began
        if since >= SHORT_NS or now - began >= LONG_NS:
            # The loop had time, or has no time to sleep.
            self.calm += 1
            if self.calm >= TURNS:
                self.level = 0
                self.on_trial = self.climbs = self.is_longest = False
                self.gathered = self.rate = 0
                self.open_window()
            return 0
        self.turns += 1
        self.chunks += chunks
        self.octets += octets
        self.frames += min(frames, (AWAITED_MOST if self.is_awaited else MOST) * chunks)
        self.parsed += frames
        if self.turns >= TURNS:
            self.judge(
                <double> self.frames / self.turns, <double> self.parsed / (now - self.opened),
                self.frames >= (AWAITED_ENOUGH if self.is_awaited else ENOUGH) * self.chunks
                or self.octets >= ENOUGH_OCTETS * self.chunks)
            self.open_window()
        return self.length(frames) if self.level else 0

    cdef uint64_t length(self, uint64_t frames) noexcept:
        """Of the sleep behind a turn with this number of frames (ns)."""
        cdef int level = min(self.level, self.levels())
        if level == 1 and self.brings_few(frames):
            return FIRST_OF_FEW_NS
        return <uint64_t> FIRST_NS << (level - 1)

    cpdef bint brings_few(self, uint64_t frames) noexcept:
        """Whether turns follow at once, and one with this number of frames brings little."""
        return self.level > 0 and frames < LEAST_LONGER

    cpdef bint needs_rests(self, uint64_t octets) noexcept:
        """Whether the socket may rest that a chunk of `octets` bytes came from: very many frames
        come though the loop sleeps, and the sleep is a long one or is not longer because of chunks
        as large as this, which may be of small packets all the same. Of a client that sends fewer
        frames, no more would come if its socket rested."""
        return self.rate >= FLOODED and (
            self.level >= LONG_LEVEL
            or (self.level > 0 and octets >= ENOUGH_OCTETS and not self.is_awaited))

    cpdef void slept(self, uint64_t now) noexcept:
        """The sleep is over."""
        self.ended = now

    cdef void open_window(self) noexcept:
        self.turns = self.frames = self.chunks = self.octets = self.parsed = self.calm = 0
        self.opened = self.ended

    cdef void judge(self, double gathered, double rate, bint is_enough) noexcept:
        """Ends a window with an average of `gathered` frames a turn, and `rate` a nanosecond."""
        if self.level and gathered < LEAST:
            self.give_up(0)
        elif self.level > 1 and gathered < LEAST_LONGER:
            self.give_up(1)
        elif self.on_trial:
            self.trial -= 1
            if self.trial < COUNTED:
                self.tried_gathered += gathered / COUNTED
                self.tried_rate += rate / COUNTED
            if self.trial == 0:
                self.decide(self.tried_gathered, self.tried_rate)
        else:
            self.wait = max(self.wait - 1, 0)
            self.note(gathered, rate)
            if self.rate < self.promised * LOST or self.rate > self.settled * GAINED:
                # What comes is of another kind now.
                self.gathered = self.unslept = 0
                self.climbs = True
                self.wait = 0
                self.settled = self.rate
            elif self.wait == 0:
                self.choose(is_enough)

    cdef void note(self, double gathered, double rate) noexcept:
        """Counts a window that is no part of a trial."""
        if self.gathered == 0:
            self.gathered = gathered
            self.rate = self.promised = rate
            self.wait = max(self.wait, SETTLING)
        self.gathered += (gathered - self.gathered) * SHARE
        self.rate += (rate - self.rate) * SHARE
        self.promised = max(self.rate, self.promised + (self.rate - self.promised) * FORGOTTEN)
        if self.level == 0:
            self.unslept = self.rate

    cdef void choose(self, bint is_enough) noexcept:
        """Which sleep is tried now, if one is: without one the next window chooses again."""
        cdef bint can_be_longer = self.level < self.levels() and not is_enough
        if can_be_longer and (self.climbs or not self.is_longest):
            self.attempt(self.level + 1)
        elif self.climbs:
            self.rest(self.level)
        elif self.level:
            self.attempt(self.level - 1)

    cdef int levels(self) noexcept:
        """How long a sleep may be now; one round in between does not end the longer ones."""
        return AWAITED_LEVELS if self.is_awaited else LEVELS

    cdef void attempt(self, int level) noexcept:
        """The next windows are with another sleep."""
        self.before = self.level
        self.on_trial = True
        self.trial = TRIAL if level > 1 or self.level > 1 else FIRST_TRIAL
        self.tried_gathered = self.tried_rate = 0
        self.level = level

    cdef void decide(self, double gathered, double rate) noexcept:
        """The last windows of a trial had so much."""
        cdef bint is_longer = self.level > self.before
        cdef double worth = LONGER_WORTH if self.level + self.before > 1 else WORTH
        cdef bint pays
        if is_longer:
            # Not of what came with the last sleep: each would cost a little.
            pays = gathered >= self.gathered * worth and rate >= self.unslept * AS_MUCH
        else:
            pays = gathered * worth >= self.gathered or rate * AS_MUCH >= self.rate
        if self.level == 0:
            self.unslept = rate
        if not pays:
            self.give_up(self.before)
            return
        self.failed = 0
        self.gathered = gathered
        self.rate = rate
        self.rest(self.level)
        if is_longer:
            self.climbs = True
            self.wait = SETTLING

    cdef void give_up(self, int level) noexcept:
        """A sleep is not worth while: back to `level`, and longer until the next trial."""
        self.failed = min(self.failed + 1, MOST_FAILED)
        self.rest(level)

    cdef void rest(self, int level) noexcept:
        """Nothing is tried for a while; then a shorter sleep is, or a longer one, in turn."""
        self.on_trial = self.climbs = False
        self.level = level
        self.is_longest = level > 0 and not self.is_longest
        self.settled = self.rate
        self.wait = PATIENCE << self.failed
