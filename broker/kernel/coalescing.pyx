# cython: language_level=3
"""Whether a socket is left alone for some milliseconds behind each short chunk, so that the kernel
of its client joins small packets.

A client of the same machine that flushes each publish sends each as a packet, while the broker's
receive window has room. Such a write takes the client four times as long as one that only adds to
what waits for room, and the broker needs three times as long to receive it. No sleep of
`moderation.pyx` is so long that the window becomes full. A rest is, if the window is narrow: has
room for few packets as small as the client's. Then each chunk that is received makes room for a
large packet, until nothing waits at the client any more, and the next rest begins.

A trial is made of sockets whose packets stay small though the loop sleeps, where very many frames
come (`Moderation.needs_rests`). Rests are kept if more comes with them. A client that waits for an
answer loses the time of a trial, and trials that fail become rare.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    LEAST_NS = 3000000           # of a rest; doubled while the window was not full behind it
    MOST_NS = 16000000
    MOST_ON_TRIAL_NS = 20000000  # of the rests of a trial
    SMALL = 2560                 # bytes of a packet, on average of a chunk, that is not joined
    # The bound of the receive buffer when the window is narrow. Each packet that fills it costs the
    # client time, and each chunk of what the client has gathered costs the broker some.
    PACKETS = 128                # as small as the client's, for which it has room,
    LEAST_NARROW = 12288
    GROWING = 32768              # packets of 256 bytes
    LONG = 262144                # bytes of a burst: a shorter rest would be as good
    ENDLESS = 8388608            # there are no small packets, and the narrow window only costs
    WINDOW = 64                  # chunks that are looked at before a trial,
    OFTEN = 60                   # of which at least this number have small packets
    JOINED = 16384               # bytes of an average chunk: its packets are joined already
    UNTRIED_NS = 5000000         # behind a window without a trial: nothing is looked at
    # The kernel takes nothing back that it has offered. With each acknowledgement it rounds up what
    # it offers, mostly to a KiB or less: chunks below that never narrow the window, and more
    # gathers in a rest.
    WIDE = 262144                # if it does not say what it has offered
    ROUNDED = 1024
    MOST_WIDE = 512              # chunks for that
    MOST_SHORT = 3               # below a KiB behind each other: the client waits for answers
    GAP_NS = 40000000            # without a chunk: the client has stopped, or something was dropped
    # A period is a rest and the burst of chunks behind it, up to a short one.
    FIRST = 3                    # periods of a trial that fill the window once, or it is over
    EARLY = 5                    # after which it is over if much less came than without rests
    PERIODS = 8                  # that count behind these; as many are judged later
    MOST_EMPTY = 8               # bursts behind each other that were only a short chunk
    MOST_POOR = 2                # windows behind each other that were not worth while
    PATIENCE_NS = 250000000      # behind a trial that failed, twice as long behind the next
    MOST_FAILED = 7
    WAITED = 5                   # trials that failed, as which one with a client that waits counts

# Rests are worth while if this many times as much comes as without; and where packets were joined
# already, which are cheaper then, if not less comes.
cdef double WORTH = 1.25
# A client of which less than this part comes waits for answers.
cdef double WAITS = 0.75
# What comes in the first rest of a trial, at the rate without rests, in parts of a narrow window:
# so that it is full. Of eight clients on one processor that send a packet for each message, too
# little would come in a shorter one, and all would stay as it is.
cdef double FILLED = 1.25


@cython.final
cdef class Coalescing:
    """Asked behind each chunk of one socket, whose receive buffer is bound to `size` bytes when it
    does not rest."""

    def __init__(self, uint64_t size):
        self.size = size

    cpdef uint64_t rest(
            self, uint64_t now, uint64_t octets, bint is_all, uint64_t offered=0,
            uint32_t packets=0) noexcept:
        """How many ns the socket rests behind a chunk of `octets` bytes, received at `now`
        (monotonic ns); 0: it does not. `is_all`: nothing else had come. Where it `asks` for them,
        `offered` bytes may the client send (0: the kernel does not say), and `packets` with data
        have come (modulo 2**32)."""
        cdef uint64_t length = 0
        if now > self.last + GAP_NS:
            if self.is_on:
                self.stop(now)
            else:
                self.open_window(now)
        self.octets += octets
        if not self.is_on:
            if now >= self.again:
                self.observe(now, octets, is_all, packets)
        elif self.wide:
            length = self.become_narrow(now, octets, offered)
        else:
            self.burst += octets
            if is_all and octets < self.narrow // 2:
                length = self.end_period(now)
            elif self.burst > ENDLESS:
                self.stop(now)
        self.last = now + length
        return length

    cpdef bint asks(self, uint64_t now) noexcept:
        """Whether `rest` has to know what the kernel counts, behind a chunk received at `now`."""
        return self.wide > 0 if self.is_on else now >= self.again

    cpdef uint64_t room(self) noexcept:
        """The bound of the receive buffer; 0: as without rests.

        The kernel drops what it has no room for, and the client sends that again 200 ms later. It
        takes twice the bound, and offers 0.8 to 0.97 of that: with half of what it has offered, it
        offers less and less, and has room for 0.85 of it when small packets are put together."""
        if not self.is_on:
            return 0
        return min(self.size, self.narrow + self.wide // 2)

    cpdef uint64_t room_in_rest(self) noexcept:
        """The same in a rest. What a narrow window offers the client leaves too little for the
        overhead of small packets, even when they are put together: so that the kernel drops none,
        there is more room."""
        return min(self.size, max(self.room(), self.narrow * 4 // 3))

    cpdef bint may_grow(self) noexcept:
        """Whether the kernel may make the receive buffer larger where it would drop something. It
        does so for short packets soon, of which it counts ten times the bytes: then the window
        is not narrow. For those of some hundred bytes it has to: a publisher with 1,000 unconfirmed
        messages of 1 KiB lost packets in each second, and waited for 200 ms for some of them."""
        return not self.is_on or self.narrow >= GROWING

    cdef uint64_t window(self) noexcept:
        """Bytes of a narrow window: more than the kernel offers with this bound."""
        return self.narrow * 2

    cdef void observe(
            self, uint64_t now, uint64_t octets, bint is_all, uint32_t packets) noexcept:
        """Counts a chunk without rests; the first one of a window only tells where it begins."""
        cdef uint32_t came = packets - self.packets
        self.packets = packets
        if self.chunks == 0:
            self.opened = now
            self.octets = self.came = 0
        else:
            self.small += is_all and octets < <uint64_t> SMALL * came
            self.came += came
        self.chunks += 1
        if self.chunks > WINDOW:
            self.choose(now)

    cdef uint64_t become_narrow(self, uint64_t now, uint64_t octets, uint64_t offered) noexcept:
        """Counts a chunk of a trial whose window is still wide. Returns how long the socket rests,
        so that more comes at a time."""
        if offered:
            self.wide = max(offered, self.window()) - self.window()
        else:
            self.wide -= min(self.wide, max(octets, <uint64_t> ROUNDED) - ROUNDED)
        self.chunks += 1
        if self.wide == 0:
            self.empty = 0
            self.open_window(now)
        elif self.chunks == MOST_WIDE:
            self.stop(now)
        elif octets >= ROUNDED:
            self.empty = 0
        else:
            self.empty += 1
            if self.empty < MOST_SHORT:
                # No more than half of what there is room for comes meanwhile.
                return <uint64_t> min(
                    (self.wide + self.window()) / 4 / self.unrested, <double> LEAST_NS)
            self.stop(now)
        return 0

    cdef void open_window(self, uint64_t now) noexcept:
        self.chunks = self.small = self.periods = 0
        self.octets = self.burst = 0
        self.opened = now

    cdef void choose(self, uint64_t now) noexcept:
        """Ends a window without rests: a trial begins if its packets were small."""
        if self.small >= OFTEN and now > self.opened:
            self.unrested = self.rate(now)
            self.wanted = self.unrested * (
                WORTH if self.octets < <uint64_t> JOINED * WINDOW else 1.0)
            self.is_on = self.on_trial = True
            self.wide = WIDE
            self.narrow = min(
                max(PACKETS * self.octets // self.came, <uint64_t> LEAST_NARROW), self.size)
            self.length = <uint64_t> min(
                max(FILLED * self.window() / self.unrested, <double> LEAST_NS),
                <double> MOST_ON_TRIAL_NS)
            self.poor = self.empty = 0
            self.largest = 0
        else:
            self.again = now + UNTRIED_NS
        self.open_window(now)

    cdef double rate(self, uint64_t now) noexcept:
        """Bytes a nanosecond in this window."""
        return <double> self.octets / max(now - self.opened, <uint64_t> 1)

    cdef uint64_t end_period(self, uint64_t now) noexcept:
        """Returns how long the next rest is; 0: there is none."""
        cdef uint64_t most = MOST_ON_TRIAL_NS if self.on_trial else MOST_NS
        self.empty = self.empty + 1 if self.burst < self.narrow // 2 else 0
        if self.on_trial and self.periods == 0:
            pass                     # there was no rest before this burst
        elif self.burst < self.window():
            self.length = min(2 * self.length, most)
        elif self.burst > LONG:
            self.length = max(self.length // 2, <uint64_t> LEAST_NS)
        else:
            self.length = min(self.length, <uint64_t> MOST_NS)
        self.largest = max(self.largest, self.burst)
        self.burst = 0
        self.periods += 1
        if self.on_trial:
            if self.periods == FIRST:
                if self.largest < self.window() and self.length == most:
                    self.give_up(now)
            elif self.periods == EARLY:
                # Of two clients that share a processor one may send much in two of these periods
                # and little in the others.
                if self.rate(now) < self.unrested * WAITS:
                    self.give_up(now)
                self.octets = 0
                self.opened = now
            elif self.periods == EARLY + PERIODS:
                self.judge(now)
        elif self.empty == MOST_EMPTY:
            self.stop(now)
        elif self.periods == PERIODS:
            self.judge(now)
        return self.length if self.is_on else 0

    cdef void judge(self, uint64_t now) noexcept:
        """Ends a window with rests."""
        if self.rate(now) >= self.wanted:
            self.failed = self.poor = 0
            self.on_trial = False
        else:
            self.poor += 1
        # Where several clients share a processor, a trial is worth while when all of them rest.
        if self.poor == MOST_POOR or (self.on_trial and self.rate(now) < self.unrested):
            self.stop(now)
        else:
            self.open_window(now)

    cdef void give_up(self, uint64_t now) noexcept:
        """The client waits for answers: the next trial is late."""
        self.failed = max(self.failed, WAITED)
        self.stop(now)

    cdef void stop(self, uint64_t now) noexcept:
        """No more rests, and no trial for a while."""
        self.is_on = self.on_trial = False
        self.wide = 0
        self.again = now + (<uint64_t> PATIENCE_NS << self.failed)
        self.failed = min(self.failed + 1, MOST_FAILED)
        self.open_window(now)
