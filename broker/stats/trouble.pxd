from libc.stdint cimport int64_t

from broker.stats.gauge cimport Gauge


cdef str word_of_consumer(object consumer, Gauge gauge, int64_t now, double stuck_after)
cdef str word_of(object queue, Gauge gauge, const double* row, const double* signs, int64_t now,
                 double stuck_after)
