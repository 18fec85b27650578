# cython: language_level=3
"""Queues and connections as the usage feed and the statistics read them, in C, that have counted
what a test says."""

from libc.stdint cimport int64_t, uint64_t

from broker.queues.declared cimport DeclaredQueue, Levels
from broker.wire.frame_parser cimport FrameParser

from broker.features.usage import accounts
from broker.stats.gauges import KINDS

cdef tuple SAMPLED = (*KINDS["queue"][0], *KINDS["queue"][1])


cdef int fill(object counted, tuple names, uint64_t* row) except -1:
    cdef int place
    for place in range(len(names)):
        row[place] = counted.get(names[place], 0)
    return 0


cdef class CountedQueue(DeclaredQueue):
    """`counted` is what it fills its row of the feed with, by the names of
    `broker.features.usage.accounts`, `sampled` that of the statistics, by those of
    `broker.stats.gauges`."""

    cdef public object counted
    cdef public dict sampled
    cdef public uint64_t messages
    cdef public uint64_t message_bytes
    cdef public int consumer_count

    cdef int use(self, int64_t now, uint64_t* row) except -1:
        return fill(self.counted, accounts.QUEUE, row)

    cdef void held(self, uint64_t* messages, uint64_t* size) noexcept:
        messages[0] = self.messages
        size[0] = self.message_bytes

    cdef int levels(self, Levels* found) except -1:
        named = self.sampled or {}
        found.ready = named.get("messages_ready", 0)
        found.unacked = named.get("messages_unacknowledged", 0)
        found.bytes = named.get("message_bytes", 0)
        found.consumers = self.consumer_count
        return 0

    cdef int sample(self, double* row, double* signs) except -1:
        cdef int place
        if self.sampled is not None:
            for place in range(len(SAMPLED)):
                row[place] = self.sampled.get(SAMPLED[place], 0)
        signs[0] = self.consumer_count
        return 0


cdef class CountedConnection(FrameParser):
    """`counted` is what it fills its row of the feed with, as a queue does."""

    cdef public object counted

    cdef void use(self, uint64_t* row) noexcept:
        fill(self.counted, accounts.CONNECTION, row)
