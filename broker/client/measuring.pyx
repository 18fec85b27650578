# cython: language_level=3
"""Latencies: a histogram of constant size, exact to 1/64."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cdef enum:
    # Steps of each power of two, as bits.
    STEP_BITS = 6
    STEPS = 1 << STEP_BITS
    BUCKETS = (64 - STEP_BITS) * STEPS


cdef extern from *:
    int __builtin_clzll(unsigned long long) noexcept nogil


cdef inline int bucket_of(uint64_t value) noexcept nogil:
    cdef int shift
    if value < STEPS:
        return <int> value
    shift = 63 - __builtin_clzll(value) - STEP_BITS
    return (shift << STEP_BITS) + <int> (value >> shift)


cdef inline uint64_t end_of(int bucket) noexcept nogil:
    """The highest value that goes to a bucket."""
    cdef int shift
    if bucket < 2 * STEPS:
        return bucket
    shift = (bucket >> STEP_BITS) - 1
    return ((<uint64_t> (bucket - (shift << STEP_BITS)) + 1) << shift) - 1


cdef class Histogram:
    """Counts of times in nanoseconds. `total` is their sum, `highest` the longest."""

    def __cinit__(self):
        self.buckets = <uint64_t*> calloc(BUCKETS + STEPS, sizeof(uint64_t))
        if self.buckets == NULL:
            raise MemoryError("no memory for a histogram")

    def __dealloc__(self):
        free(self.buckets)

    cdef void add(self, int64_t ns) noexcept:
        if ns < 0:
            ns = 0
        self.buckets[bucket_of(ns)] += 1
        self.count += 1
        self.total += ns
        if ns > self.highest:
            self.highest = ns

    def record(self, int64_t ns):
        """Adds one time."""
        self.add(ns)

    def clear(self):
        """Forgets all times."""
        memset(self.buckets, 0, (BUCKETS + STEPS) * sizeof(uint64_t))
        self.count = 0
        self.highest = 0
        self.total = 0

    def percentile(self, double part) -> int:
        """The time in nanoseconds that `part` (0 to 1) of all do not exceed; 0 without any."""
        cdef uint64_t wanted = <uint64_t> (part * self.count + 0.999999)
        cdef uint64_t found = 0
        cdef int bucket
        if wanted > self.count:
            wanted = self.count
        if wanted == 0:
            return 0
        for bucket in range(BUCKETS + STEPS):
            found += self.buckets[bucket]
            if found >= wanted:
                return min(<int64_t> end_of(bucket), self.highest)
        return self.highest

    @property
    def mean(self) -> float:
        """The mean in nanoseconds."""
        return self.total / self.count if self.count else 0.0


def monotonic_ns() -> int:
    """The clock that stamps are made with."""
    return now_ns()
