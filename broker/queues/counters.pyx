# cython: language_level=3
"""What a queue counts: messages that come in and leave, deliveries, and what it held over time.

The rows of the statistics and of the usage feed are filled from these parts.
"""

from libc.stdint cimport int64_t, uint64_t

from broker.kernel cimport clock


cdef class QueueCounters:
    """What every type of queue counts, since it was declared or recovered: messages that came in,
    and those that left without a consumer."""

    cdef void use(self, uint64_t* row) noexcept:
        """Fills a row of the usage feed."""
        row[USE_PUBLISH] = self.published
        row[USE_PUBLISH_BYTES] = self.bytes_in
        row[USE_CONFIRM] = self.confirmed
        row[USE_EXPIRED] = self.expired
        row[USE_EXPIRED_BYTES] = self.expired_bytes
        row[USE_DROPPED] = self.dropped
        row[USE_DROPPED_BYTES] = self.dropped_bytes
        row[USE_PURGE] = self.purged
        row[USE_PURGE_BYTES] = self.purged_bytes
        row[USE_DELETE] = self.removed
        row[USE_DELETE_BYTES] = self.removed_bytes


cdef class DeliveryCounters:
    """Deliveries and gets of a queue, and their ends."""

    cdef void sample(self, double* row) noexcept:
        """Fills a row of the statistics."""
        # A signed number becomes a float in one instruction, an unsigned one takes six.
        row[DELIVER] = <double> <int64_t> self.delivered
        row[DELIVER_NO_ACK] = <double> <int64_t> self.delivered_no_ack
        row[GET] = <double> <int64_t> self.got
        row[GET_NO_ACK] = <double> <int64_t> self.got_no_ack
        row[GET_EMPTY] = <double> <int64_t> self.got_empty
        row[ACK] = <double> <int64_t> self.acked
        row[REDELIVER] = <double> <int64_t> self.redelivered
        row[REJECT] = <double> <int64_t> self.rejected

    cdef void use(self, uint64_t* row) noexcept:
        """Fills a row of the usage feed."""
        row[USE_DELIVER] = self.delivered
        row[USE_DELIVER_NO_ACK] = self.delivered_no_ack
        row[USE_DELIVER_NO_ACK_BYTES] = self.no_ack_bytes
        row[USE_GET] = self.got
        row[USE_GET_BYTES] = self.got_bytes
        row[USE_GET_NO_ACK] = self.got_no_ack
        row[USE_GET_NO_ACK_BYTES] = self.got_no_ack_bytes
        row[USE_DELIVER_BYTES] = (
            self.bytes_out - self.no_ack_bytes - self.got_bytes - self.got_no_ack_bytes)
        row[USE_GET_EMPTY] = self.got_empty
        row[USE_REDELIVER] = self.redelivered
        row[USE_REDELIVER_BYTES] = self.redelivered_bytes
        row[USE_ACK] = self.acked
        row[USE_ACK_BYTES] = self.acked_bytes
        row[USE_REJECT] = self.rejected
        row[USE_REJECT_BYTES] = self.rejected_bytes

    cdef uint64_t left(self) noexcept:
        """Messages that left the queue, without those that it dropped itself."""
        return self.acked + self.delivered_no_ack + self.got_no_ack + self.rejected


cdef class Backlog:
    """What a queue holds, ready and unacknowledged: the most messages, the integrals of messages
    and bytes over time, and whether they are persistent, as far as counts of publishes tell."""

    def __init__(self):
        self.noted_at = clock.now_ms

    cdef void note(self, uint64_t messages, uint64_t size, int64_t now) noexcept:
        """Until now it held this, since it was noted last."""
        if now > self.noted_at:
            self.messages_ms += messages * <uint64_t> (now - self.noted_at)
            self.message_bytes_ms += size * <uint64_t> (now - self.noted_at)
            self.noted_at = now
        if <int64_t> messages > self.most:
            self.most = <int64_t> messages

    cdef int64_t take_most(self, uint64_t messages) noexcept:
        """The most messages since the last call of this; it holds `messages` now."""
        cdef int64_t most = max(self.most, <int64_t> messages)
        self.most = <int64_t> messages
        return most

    cdef int persistence(self, uint64_t messages, bint durable, uint64_t published) noexcept:
        """Whether all of these messages in the store are persistent, 1, or none of them, 0; -1 if
        there are both, or if it is not known. A transient queue holds no persistent messages."""
        if messages == 0:
            self.stored_from = published
            self.transient_from = self.transient
            self.recovered = False
            return 0
        if not durable:
            return 0
        if self.recovered:
            return -1
        if self.transient == self.transient_from:
            return 1
        if published - self.stored_from == self.transient - self.transient_from:
            return 0
        return -1
