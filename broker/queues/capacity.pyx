# cython: language_level=3
"""How much of the time a queue could hand a message to a consumer at once: RabbitMQ's
`consumer_capacity`.

A queue notes when no consumer had room for its next message, and when one had again: once for each
time in the turn, not for each message. Stretches of at least a second are averaged, older ones
counting half for each two seconds that have passed.
"""

from libc.math cimport exp

from libc.stdint cimport int64_t

from broker.kernel cimport clock

cdef enum:
    STRETCH_MS = 1000

# Per ms; a stretch counts half after two seconds.
cdef double FADING = -0.6931471805599453 / 2000


cdef class Capacity:
    """From 0 to 1. The initial value is 1: deliveries have not waited for consumers yet."""

    def __init__(self):
        self.since = clock.now_ms
        self.average = 1.0

    cdef void block(self) noexcept:
        """No consumer can take the next message."""
        if not self.blocked_at:
            self.blocked_at = clock.now_ms

    cdef void unblock(self) noexcept:
        """One can again."""
        if self.blocked_at:
            self.blocked_ms += clock.now_ms - self.blocked_at
            self.blocked_at = 0
            if clock.now_ms - self.since >= STRETCH_MS:
                self.average = self.share()
                self.since = clock.now_ms
                self.blocked_ms = 0

    cdef double share(self) noexcept:
        """With what has passed of the stretch at hand."""
        cdef int64_t passed = clock.now_ms - self.since
        cdef int64_t blocked = self.blocked_ms
        cdef double weight
        if passed <= 0:
            return self.average
        if self.blocked_at:
            blocked += clock.now_ms - self.blocked_at
        weight = exp(passed * FADING)
        return self.average * weight + (1 - <double> blocked / passed) * (1 - weight)
