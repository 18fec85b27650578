from libc.stdint cimport int64_t, uint64_t

from broker.contracts cimport Queue
from broker.store.bodies cimport BodyStore


# The row that the statistics take of a queue: counters, then levels (`broker.stats.gauges`).
cdef enum:
    PUBLISH, DELIVER, DELIVER_NO_ACK, GET, GET_NO_ACK, GET_EMPTY, ACK, REDELIVER, REJECT, CONFIRM
    READY, UNACKED, BYTES


cdef class DeclaredQueue(Queue):
    cdef readonly str name
    cdef readonly str vhost_name
    cdef readonly bint exclusive
    cdef readonly bint auto_delete
    cdef object _arguments
    cdef readonly uint64_t incarnation
    cdef readonly bint deleted
    cdef readonly object bounds          # `broker.bounds.Bounds`
    cdef public object owner
    cdef public object unused            # called when an auto-delete queue's last consumer has left
    cdef public object policy            # the policies it is under (`broker.policies`), or None
    cdef public object later             # later(seconds, callback) -> timer with .cancel()
    cdef public object dead_letter       # (queue, reason, exchange, routing key, properties) -> ...
    cdef public BodyStore bodies         # of the vhost; None: every body is embedded
    cdef public object gauge             # what stats.py keeps for a queue with traffic
    cdef public int64_t used_at          # last cancel, get or declare, ms of our clock
    cdef readonly uint64_t published
    cdef readonly uint64_t confirmed
    cdef readonly uint64_t bytes_in
    cdef readonly uint64_t dropped       # by a limit

    cdef int sample(self, double* row, double* signs) except -1
