# cython: language_level=3
"""What is remembered of one object with traffic: its newest counters, rates, a short history.

Rows are kept in C. An object that does not change keeps one row and is not looked at beyond the
comparison that `broker.stats.scan` makes.
"""

from array import array

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport fabs
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from broker.stats.gauges import KINDS
from broker.stats.series import OBJECT_TIERS, Series

cdef enum:
    WINDOW_MS = 5000             # of the rates
    TICK_MS = 1000

cdef double STANDS = 0.001       # messages a second; less growth is none
cdef double SMOOTHING = 0.1      # of the growth: about half a minute

_NAMES = {kind: (*counters, *levels) for kind, (counters, levels) in KINDS.items()}
_PLACES = {
    kind: {name: place for place, name in enumerate(names)} for kind, names in _NAMES.items()}


cdef class Gauge:
    """Counters and levels of one object over the last seconds; `at`: now, in ms since 1970.

    `acked_at`: when something was acknowledged last, or nothing was waiting for it, or a consumer
    came. `changed_at`: when a counter or a level changed last. `consumers`: how many there were at
    the last look. `growth`: change of the messages a second, smoothed over about half a minute.
    `unconfirmed_since`: when a channel's `oldest_unconfirmed` tag was first seen as the oldest.
    All times are ms since 1970.
    """

    def __cinit__(self, str kind, int64_t at=0):
        self.kind = kind
        self.names = _NAMES[kind]
        self.places = _PLACES[kind]
        self.width = <int> len(self.names)
        if self.width > WIDTH_MAX:
            raise ValueError(f"a row of {kind} has more than {WIDTH_MAX} columns")
        self.acked_at = at
        memset(self.signs, 0, sizeof(self.signs))

    def __dealloc__(self):
        free(self.rows)
        free(self.marks)

    # -- rows --------------------------------------------------------------------------------------

    cdef double* row(self, int place) noexcept:
        """The row at a place of the window, 0 the oldest."""
        return self.rows + (self.first + place) % self.capacity * self.width

    cdef int push(self, int64_t at, const double* row) except -1:
        """Adds the newest row; forgets those that no rate needs any more."""
        cdef double* grown
        cdef int place
        if self.capacity < ROWS:
            grown = <double*> realloc(self.rows, ROWS * self.width * sizeof(double))
            if grown == NULL:
                raise MemoryError
            self.rows = grown
            self.capacity = ROWS
        while self.count > 2 and self.times[(self.first + 1) % ROWS] <= at - WINDOW_MS:
            self.first = (self.first + 1) % ROWS
            self.count -= 1
        if self.count == ROWS:
            self.first = (self.first + 1) % ROWS
            self.count -= 1
        place = (self.first + self.count) % ROWS
        self.times[place] = at
        memcpy(self.rows + place * self.width, row, self.width * sizeof(double))
        self.count += 1
        return 0

    cdef int take(self, int64_t at, int64_t before, const double* row,
                  const double* signs) except -1:
        """A look at the object: `before` is the time of the look before, at which it was as in the
        newest row, if there is one; 0 if there was no such look."""
        cdef double zero[WIDTH_MAX]
        cdef double* newest
        cdef int64_t tick
        cdef int place, counters
        if self.count == 0:
            if before:
                # Nothing was counted yet at the last look, so there is a rate from the first on.
                memset(zero, 0, sizeof(zero))
                counters = <int> len(KINDS[self.kind][0])
                for place in range(counters, self.width):
                    zero[place] = row[place]
                if self.kind in ("queue", "exchange") and at - WINDOW_MS < before:
                    # It may have been there for long: its first message is one in a whole window.
                    self.push(at - WINDOW_MS, zero)
                self.push(before, zero)
            self.changed_at = at
        else:
            newest = self.row(self.count - 1)
            if memcmp(newest, row, self.width * sizeof(double)):
                self.changed_at = at
            if before > self.times[(self.first + self.count - 1) % ROWS]:
                # It stood still since the newest row.
                memcpy(zero, newest, self.width * sizeof(double))
                if self.history is not None:
                    self.note(before)
                tick = before - WINDOW_MS + TICK_MS
                while tick <= before:
                    if tick > self.times[(self.first + self.count - 1) % ROWS]:
                        self.push(tick, zero)
                    tick += TICK_MS
        self.push(at, row)
        memcpy(self.signs, signs, sizeof(self.signs))
        return 0

    cdef bint still(self) noexcept:
        """Whether nothing changed within the window of the rates."""
        return self.count < 2 or memcmp(
            self.row(0), self.row(self.count - 1), self.width * sizeof(double)) == 0

    cdef int settle_down(self) except -1:
        """Keeps the newest row only: nothing changes."""
        cdef int64_t at
        cdef double* shrunk
        cdef double newest[WIDTH_MAX]
        if self.capacity != ROWS:
            return 0
        at = self.times[(self.first + self.count - 1) % ROWS]
        memcpy(newest, self.row(self.count - 1), self.width * sizeof(double))
        shrunk = <double*> realloc(self.rows, self.width * sizeof(double))
        if shrunk == NULL:
            return 0
        self.rows = shrunk
        memcpy(shrunk, newest, self.width * sizeof(double))
        self.capacity = self.count = 1
        self.first = 0
        # As it was before that row, too, or its next change would be all that a second had.
        self.times[0] = at - WINDOW_MS
        return 0

    def add(self, int64_t at, row):
        """Takes a row as it is, in the order of `names`."""
        cdef double values[WIDTH_MAX]
        cdef int place
        for place in range(self.width):
            values[place] = row[place]
        self.take(at, 0, values, self.signs)
        self.active = True
        if self.history is not None:
            self.note(at)

    cdef void judge(self, int64_t at, bint waiting, int consumers, int acks, int rejects) noexcept:
        """Whether its consumers go on: nothing waits for their acknowledgement, or some came
        (`acks` and `rejects`: the columns that tell). One more consumer than before has its own
        time to begin."""
        if (not waiting or consumers > self.consumers
                or self.shown_rate(acks) + self.shown_rate(rejects) > 0):
            self.acked_at = at
        self.consumers = consumers

    cpdef void grow(self, int level) noexcept:
        """Brings the growth of a level up to now."""
        cdef double rate = self.shown_rate(level)
        self.growth += (rate - self.growth) * SMOOTHING
        if rate == 0 and fabs(self.growth) < STANDS:
            self.growth = 0.0

    # -- what others ask ---------------------------------------------------------------------------

    @property
    def newest(self):
        cdef double* row
        if not self.count:
            return ()
        row = self.row(self.count - 1)
        return array("d", [row[place] for place in range(self.width)])

    @property
    def is_quiet(self) -> bool:
        """Whether nothing changed within the window of the rates."""
        return self.still()

    cdef double rate_at(self, int place) noexcept:
        """Change a second within the window. Where looks are further apart than a second, the
        oldest row is older than the window: what happened until the next is spread evenly then."""
        cdef int64_t end, begin, oldest
        cdef double before, newest
        cdef int first = 0
        if self.count < 2:
            return 0.0
        end = self.times[(self.first + self.count - 1) % ROWS]
        begin = end - WINDOW_MS
        while self.times[(self.first + first + 1) % ROWS] <= begin:
            first += 1  # the newest row is within the window, so there is always a next one
        oldest = self.times[(self.first + first) % ROWS]
        before = self.row(first)[place]
        newest = self.row(self.count - 1)[place]
        if oldest >= begin:
            return (newest - before) * 1000 / max(1, end - oldest)
        before += ((self.row(first + 1)[place] - before) * (begin - oldest)
                   / (self.times[(self.first + first + 1) % ROWS] - oldest))
        return (newest - before) * 1000 / WINDOW_MS

    cdef double shown_rate(self, int place) noexcept:
        return thousandths(self.rate_at(place))

    @property
    def net_rate(self):
        """The growth, as it is shown."""
        return thousandths(self.growth)

    def rate(self, str name) -> float:
        """Change per second over the last five seconds."""
        return self.shown_rate(self.places[name])

    def rate_of(self, names) -> float:
        """The sum of several rates."""
        cdef double rate = 0.0
        for name in names:
            rate += self.shown_rate(self.places[name])
        return thousandths(rate)

    # -- history -----------------------------------------------------------------------------------

    cdef int mark(self, const double* row) except -1:
        """The next step of the long history begins with this row."""
        if self.marks == NULL:
            self.marks = <double*> malloc(self.width * sizeof(double))
            if self.marks == NULL:
                raise MemoryError
        memcpy(self.marks, row, self.width * sizeof(double))
        return 0

    def step(self):
        """Ends a step of the long history: what each counter rose by, each level, and what each
        level changed by, as the bytes of floats; None if nothing changed. The next step begins."""
        cdef int counters = <int> len(KINDS[self.kind][0])
        cdef int place
        cdef double* newest
        cdef float* values
        cdef bytes found
        self.touched = False
        if not self.count or self.marks == NULL:
            return None
        newest = self.row(self.count - 1)
        if memcmp(newest, self.marks, self.width * sizeof(double)) == 0:
            return None
        found = PyBytes_FromStringAndSize(
            NULL, (counters + 2 * (self.width - counters)) * <Py_ssize_t> sizeof(float))
        values = <float*> PyBytes_AS_STRING(found)
        for place in range(counters):
            values[place] = <float> (newest[place] - self.marks[place])
        for place in range(counters, self.width):
            values[place] = <float> newest[place]
            values[place + self.width - counters] = <float> (newest[place] - self.marks[place])
        self.mark(newest)
        return found

    cdef bint rested(self, int64_t at, int64_t steps) noexcept:
        """Whether its history has more steps than that to add."""
        return (self.ring is not None and self.noted_at != 0
                and at - self.noted_at > steps * self.ring.step)

    cdef int note(self, int64_t at) except -1:
        """Adds the newest row to the history, once a step of it; steps in which nothing changed
        have the same row."""
        cdef int64_t step = self.ring.step
        cdef double* newest
        if not self.count or at // step <= self.noted_at // step:
            return 0
        newest = self.row(self.count - 1)
        if self.noted_at and at - self.noted_at > 2 * step:
            self.ring.repeat(self.noted_at + step, at, newest)
        self.ring.put(at, newest)
        self.noted_at = at
        return 0

    def keep_history(self, int64_t at=0):
        """The history as of `at` (0: as it is), begun now if there was none."""
        if self.history is None:
            counters, levels = KINDS[self.kind]
            self.history = Series(counters, levels, OBJECT_TIERS)
            self.ring = self.history.rings[0]
            self.noted_at = 0
            if self.count:
                at = max(at, self.times[(self.first + self.count - 1) % ROWS])
        if at:
            self.note(at)
        return self.history

    def drop_history(self):
        """Another object needs its place."""
        self.history = None
        self.ring = None
