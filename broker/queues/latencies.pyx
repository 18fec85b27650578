# cython: language_level=3
"""How long messages took from their publish to their first delivery, counted in buckets.

Bucket 0 is below 1 ms, 1 begins at 1 ms, and from 2 ms on each doubling has two (2, 3, 4, 6, 8, 12,
... ms), so that histograms of any time add up. The last one has no end.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset


cdef extern from *:
    int __builtin_clzll(unsigned long long value) nogil


cdef class Latencies:
    """Of one queue, since they were forgotten last."""

    cdef void add(self, int64_t ms, uint32_t count) noexcept:
        """Adds messages that waited the same time. The time is negative if the clock was set back
        between two starts."""
        cdef int octave
        cdef int bucket
        if ms < 2:
            bucket = 1 if ms == 1 else 0
            if ms < 0:
                ms = 0
        else:
            octave = 63 - __builtin_clzll(<unsigned long long> ms)
            bucket = 2 * octave + <int> (ms >> (octave - 1) & 1)
            if bucket >= LATENCY_BUCKETS:
                bucket = LATENCY_BUCKETS - 1
        self.buckets[bucket] += count
        self.count += count
        self.total += <uint64_t> ms * count
        if ms > self.most:
            self.most = ms

    cdef void forget(self) noexcept:
        memset(self.buckets, 0, sizeof(self.buckets))
        self.total = self.count = 0
        self.most = 0
