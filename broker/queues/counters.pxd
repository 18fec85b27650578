from libc.stdint cimport int64_t, uint64_t


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


cdef class QueueCounters:
    cdef readonly uint64_t published
    cdef readonly uint64_t confirmed
    cdef readonly uint64_t bytes_in
    cdef readonly uint64_t expired
    cdef uint64_t expired_bytes
    cdef readonly uint64_t dropped       # by a limit
    cdef uint64_t dropped_bytes
    cdef uint64_t purged
    cdef uint64_t purged_bytes
    cdef uint64_t removed                # with the queue
    cdef uint64_t removed_bytes

    cdef void use(self, uint64_t* row) noexcept


cdef class DeliveryCounters:
    cdef readonly uint64_t delivered
    cdef readonly uint64_t delivered_no_ack
    cdef readonly uint64_t got
    cdef readonly uint64_t got_no_ack
    cdef readonly uint64_t got_empty
    cdef readonly uint64_t acked
    cdef readonly uint64_t redelivered
    cdef readonly uint64_t rejected
    cdef readonly uint64_t bytes_out     # of all deliveries and gets; of them:
    cdef uint64_t no_ack_bytes
    cdef uint64_t got_bytes
    cdef uint64_t got_no_ack_bytes
    cdef uint64_t redelivered_bytes
    cdef uint64_t acked_bytes
    cdef uint64_t rejected_bytes

    cdef void sample(self, double* row) noexcept
    cdef void use(self, uint64_t* row) noexcept
    cdef uint64_t left(self) noexcept


cdef class Backlog:
    cdef int64_t noted_at                # so far the integrals are right, ms of our clock
    cdef int64_t most                    # messages held since `take_most`, as far as it was noted
    cdef uint64_t messages_ms            # messages held, integrated over time
    cdef uint64_t message_bytes_ms
    cdef uint64_t transient              # of the messages published, where the queue is durable
    cdef uint64_t stored_from            # publishes when the queue was known to be empty,
    cdef uint64_t transient_from         # and `transient`
    cdef bint recovered                  # messages of an earlier run are there

    cdef void note(self, uint64_t messages, uint64_t size, int64_t now) noexcept
    cdef int64_t take_most(self, uint64_t messages) noexcept
    cdef int persistence(self, uint64_t messages, bint durable, uint64_t published) noexcept
