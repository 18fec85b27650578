from libc.stdint cimport int64_t, uint64_t

from broker.kernel.contracts cimport Queue
from broker.queues.latencies cimport Latencies
from broker.store.bodies.store cimport BodyStore


# The row that the statistics take of a queue: counters, then levels (`broker.stats.gauges`).
cdef enum:
    PUBLISH, DELIVER, DELIVER_NO_ACK, GET, GET_NO_ACK, GET_EMPTY, ACK, REDELIVER, REJECT, CONFIRM
    READY, UNACKED, BYTES


# What the usage feed takes of a queue: counts since it was declared or recovered, in the order of a
# row. The names of `broker.features.usage.records` are made of these.
cpdef enum:
    USE_PUBLISH, USE_PUBLISH_BYTES
    USE_CONFIRM
    USE_DELIVER, USE_DELIVER_BYTES
    USE_DELIVER_NO_ACK, USE_DELIVER_NO_ACK_BYTES
    USE_GET, USE_GET_BYTES
    USE_GET_NO_ACK, USE_GET_NO_ACK_BYTES
    USE_GET_EMPTY
    USE_REDELIVER, USE_REDELIVER_BYTES
    USE_ACK, USE_ACK_BYTES
    USE_REJECT, USE_REJECT_BYTES
    USE_REFUSED, USE_REFUSED_BYTES
    USE_EXPIRED, USE_EXPIRED_BYTES
    USE_DROPPED, USE_DROPPED_BYTES
    # By the reasons of `dying.pxd`, in their order.
    USE_DEAD_LETTER_REJECTED, USE_DEAD_LETTER_REJECTED_BYTES
    USE_DEAD_LETTER_EXPIRED, USE_DEAD_LETTER_EXPIRED_BYTES
    USE_DEAD_LETTER_MAXLEN, USE_DEAD_LETTER_MAXLEN_BYTES
    USE_DEAD_LETTER_DELIVERY_LIMIT, USE_DEAD_LETTER_DELIVERY_LIMIT_BYTES
    USE_DISCARD_REJECTED, USE_DISCARD_REJECTED_BYTES
    USE_DISCARD_EXPIRED, USE_DISCARD_EXPIRED_BYTES
    USE_DISCARD_MAXLEN, USE_DISCARD_MAXLEN_BYTES
    USE_DISCARD_DELIVERY_LIMIT, USE_DISCARD_DELIVERY_LIMIT_BYTES
    USE_PURGE, USE_PURGE_BYTES
    USE_DELETE, USE_DELETE_BYTES
    USE_MESSAGES_MS, USE_MESSAGE_BYTES_MS


cdef enum:
    QUEUE_USES = USE_MESSAGE_BYTES_MS + 1


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
    cdef public object gauge             # what stats.py keeps for a queue with traffic
    cdef public int64_t used_at          # last cancel, get or declare, ms of our clock
    cdef readonly uint64_t published
    cdef readonly uint64_t confirmed
    cdef readonly uint64_t bytes_in
    cdef readonly uint64_t dropped       # by a limit
    cdef uint64_t dropped_bytes
    cdef uint64_t purged
    cdef uint64_t purged_bytes
    cdef uint64_t removed                # with the queue
    cdef uint64_t removed_bytes
    cdef int64_t most                    # messages held since `take_most`, as far as it was noted
    cdef int64_t held_at                 # so far the next two are right, ms of our clock
    cdef uint64_t messages_ms            # messages held, integrated over time
    cdef uint64_t message_bytes_ms
    cdef public bint is_timed            # the time from publish to delivery is noted
    cdef Latencies latencies             # None until the first one is

    cdef void held(self, uint64_t* messages, uint64_t* size) noexcept
    cdef void note_held(self, int64_t now) noexcept
    cdef int use(self, int64_t now, uint64_t* row) except -1
    cdef int64_t oldest(self) except -2
    cdef int sample(self, double* row, double* signs) except -1
