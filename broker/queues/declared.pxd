from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel.contracts cimport Queue
from broker.kernel.recording cimport Observer
from broker.kernel.turn cimport Turn
from broker.queues.counters cimport Backlog, QueueCounters
from broker.queues.latencies cimport Latencies
from broker.store.bodies.store cimport BodyStore


# What a queue holds now.
cdef struct Levels:
    double ready
    double unacked
    double bytes                         # of the bodies of both
    double consumers


cdef class DeclaredQueue(Queue):
    cdef readonly str name
    cdef readonly str vhost_name
    cdef readonly bint exclusive
    cdef readonly bint auto_delete
    cdef object _arguments
    cdef readonly uint64_t incarnation
    cdef readonly bint deleted
    cdef readonly object bounds          # `broker.settings.bounds.Bounds`
    cdef public object owner
    cdef public str declared_by          # name of the user who declared it; None if it is not known
    cdef public object unused            # called when an auto-delete queue loses its last consumer
    cdef public object policy            # what it has of `broker.vhosts.policies`, or None
    cdef public object later             # later(seconds, callback) -> timer with .cancel()
    cdef public object dead_letter       # (queue, reason, exchange, routing key, properties) -> ...
    cdef public BodyStore bodies         # of the vhost; None: every body is embedded
    cdef public Observer observer        # of its messages, for the history; None without one
    cdef public object gauge             # what stats.py keeps for a queue with traffic
    cdef public int64_t used_at          # last cancel, get or declare, ms of our clock
    cdef Turn turn
    cdef readonly QueueCounters counts
    cdef Backlog backlog
    cdef public bint is_timed            # the time from publish to delivery is noted
    cdef Latencies latencies             # None until the first one is

    cdef bint is_deleted(self) noexcept
    cdef void held(self, uint64_t* messages, uint64_t* size) noexcept
    cdef void note_held(self, int64_t now) noexcept
    cdef int64_t now(self) noexcept
    cdef int note_latency(self, int64_t published_at, uint32_t count) except -1
    cdef int use(self, int64_t now, uint64_t* row) except -1
    cdef int64_t oldest(self) except -2
    cdef int levels(self, Levels* found) except -1
    cdef int sample(self, double* row, double* signs) except -1
