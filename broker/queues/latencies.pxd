from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum:
    LATENCY_BUCKETS = 48         # as `broker.features.usage.records`


cdef class Latencies:
    cdef uint32_t buckets[LATENCY_BUCKETS]
    cdef uint64_t total          # ms
    cdef int64_t most            # ms
    cdef uint64_t count

    cdef void add(self, int64_t ms, uint32_t count) noexcept
    cdef void forget(self) noexcept
