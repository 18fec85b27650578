from libc.stdint cimport int64_t

from broker.queues.declared cimport DeclaredQueue, Levels
from broker.stats.gauge cimport Gauge


cdef double MESSAGES_MOST

cdef str word_of_consumer(object consumer, Gauge gauge, int64_t now, double stuck_after)
cdef str word_of(DeclaredQueue queue, Gauge gauge, const Levels* held, int64_t now,
                 double stuck_after)
cdef double order_of(double rank, const Levels* held) noexcept
