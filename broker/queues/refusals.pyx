# cython: language_level=3
"""Publishes that a full queue refused: how many a second, since when, and from which publishers."""

from libc.stdint cimport int64_t, uint64_t

from broker.kernel import clock as _clock
from broker.kernel cimport clock

cdef enum:
    PUBLISHERS = 100             # that are listed; the one that was refused longest ago is replaced

SPELL_MS = 30_000
"""A queue without a refusal for this time is no longer refusing."""


cdef class Refusals:
    """Made by a queue at its first refusal. A spell is a time in which refusals follow each other
    within `SPELL_MS`."""

    def __init__(self):
        self.publishers = {}

    cdef int add(self, uint64_t size) except -1:
        """Counts one refusal, now, of a message with a body of this size."""
        cdef int64_t now = clock.now_ms
        cdef int64_t second = now // 1000
        cdef int slot = <int> (second % SLOTS)
        if now - self.last_at > SPELL_MS:
            self.since = now
            self.spell = 0
            self.publishers.clear()
        if self.seconds[slot] != second:
            self.seconds[slot] = second
            self.counts[slot] = 0
        self.counts[slot] += 1
        self.last_at = now
        self.total += 1
        self.bytes += size
        self.spell += 1
        self.is_unnamed = True
        return 0

    cdef int name_publisher(self, connection) except -1:
        """The newest refusal was a publish of this connection."""
        if not self.is_unnamed:
            return 0
        self.is_unnamed = False
        key = getattr(connection, "id", 0)
        count = self.publishers.pop(key, 0)
        if count == 0 and len(self.publishers) >= PUBLISHERS:
            del self.publishers[next(iter(self.publishers))]
        self.publishers[key] = count + 1
        return 0

    @property
    def is_going_on(self):
        """Whether the last refusal is not long ago."""
        return _clock.now() - self.last_at <= SPELL_MS

    @property
    def rate(self):
        """Refused publishes a second, over the last five seconds."""
        cdef int64_t now = _clock.now()
        cdef int64_t first = now // 1000 - SLOTS + 1
        cdef int64_t begun = max(self.since, first * 1000)
        cdef int64_t count = 0
        cdef int slot
        for slot in range(SLOTS):
            if first <= self.seconds[slot] <= now // 1000:
                count += self.counts[slot]
        return round(count * 1000 / max(1000, now - begun), 3)

    def by_connection(self):
        """How many publishes of each connection were refused in this spell, by its id."""
        return dict(self.publishers)
