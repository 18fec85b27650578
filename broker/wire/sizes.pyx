# cython: language_level=3
"""How large the messages are that publishers send: a histogram of this process, with the bounds of
RabbitMQ's metric `message_size_bytes`."""

from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.message cimport Message

cdef enum:
    BUCKETS = 9                  # the last one is without a bound

BOUNDS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)

cdef uint32_t[BUCKETS] bounds
cdef uint64_t[BUCKETS] counts
cdef uint64_t total = 0
for place, bound in enumerate((*BOUNDS, 0xFFFFFFFF)):
    bounds[place] = bound
    counts[place] = 0


cdef void count_size(uint32_t length) noexcept nogil:
    """Counts a received message by the size of its body."""
    global total
    cdef int bucket = 0
    while length > bounds[bucket]:
        bucket += 1
    counts[bucket] += 1
    total += length


cdef void count_sizes(const Message* messages, uint32_t count) noexcept nogil:
    """Counts several messages."""
    cdef uint32_t i
    for i in range(count):
        count_size(messages[i].body_length)


def message_sizes() -> tuple:
    """How many bodies were at most as long as each of `BOUNDS`, but longer than the one before; how
    many were longer than all; and the sum of all, in bytes."""
    return [counts[bucket] for bucket in range(BUCKETS)], total
