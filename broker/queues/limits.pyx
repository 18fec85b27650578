# cython: language_level=3
"""What a queue's arguments limit: length, bytes, age of messages, the queue's own life.

A queue without any of them has no `Limits` and takes the fast path (`ClassicQueue.features` is
zero).
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from broker.kernel cimport clock
from broker.kernel.buffer cimport load16, load32
from broker.kernel.message cimport Message


# RabbitMQ 4's default for quorum queues, which are accepted as durable queues.
cdef enum:
    QUORUM_DELIVERY_LIMIT = 20

# A longer time than this is as good as this one, and any clock's ms can be added to it.
cdef int64_t TTL_MOST = <int64_t> 1 << 62


cdef class Limits:
    """The limits among a queue's arguments, which are checked already."""

    def __init__(self, arguments):
        self.message_ttl = min(arguments.get("x-message-ttl", -1), TTL_MOST)
        self.expires = arguments.get("x-expires", -1)
        self.max_length = arguments.get("x-max-length", -1)
        self.max_length_bytes = arguments.get("x-max-length-bytes", -1)
        overflow = arguments.get("x-overflow", "drop-head")
        self.rejects = overflow != "drop-head"
        self.dead_letters_rejected = overflow == "reject-publish-dlx"
        self.single_active = arguments.get("x-single-active-consumer", False)
        self.dead_letter_exchange = arguments.get("x-dead-letter-exchange")
        self.dead_letter_routing_key = arguments.get("x-dead-letter-routing-key")
        confirm_on = arguments.get("x-confirm-on", "write")
        self.confirm_on_ack = confirm_on != "write"
        self.is_lean = confirm_on == "ack-lean"
        is_quorum = arguments.get("x-queue-type") == "quorum"
        self.delivery_limit = arguments.get(
            "x-delivery-limit", QUORUM_DELIVERY_LIMIT if is_quorum else -1)
        self.max_priority = arguments.get("x-max-priority", 0)
        self.consumer_timeout = arguments.get("x-consumer-timeout", -1)

    cdef uint32_t features(self) noexcept:
        cdef uint32_t features = 0
        if self.max_length >= 0 or self.max_length_bytes >= 0:
            features |= HAS_LENGTH_LIMIT
        if self.message_ttl >= 0:
            features |= HAS_EXPIRY
        if self.single_active:
            features |= SINGLE_ACTIVE
        if self.dead_letter_exchange is not None:
            features |= HAS_DEAD_LETTERS
        if self.delivery_limit >= 0:
            features |= HAS_DELIVERY_LIMIT
        if self.confirm_on_ack:
            features |= CONFIRM_ON_ACK
        if self.is_lean:
            features |= IS_LEAN
        if self.max_priority > 0:
            features |= HAS_PRIORITIES
        return features

    cdef bint are_exceeded(self, int64_t count, int64_t size) noexcept:
        """Whether this number of ready messages, with bodies of this size, exceeds a limit."""
        return (self.max_length >= 0 and count > self.max_length
                or self.max_length_bytes >= 0 and size > self.max_length_bytes)


cdef class Expiry:
    """The timer for the next message of a queue that expires."""

    cdef int wait_until(self, int64_t deadline, later, due) except -1:
        """`due` is called when the deadline is over, or an earlier one that it waits for."""
        if self.timer is None or self.at > deadline:
            self.stop()
            self.at = deadline
            self.timer = later((deadline - clock.now_ms + 1) / 1000, due)
        return 0

    cdef int stop(self) except -1:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return 0


cdef int64_t ttl_of(Message* message, int64_t queue_ttl) noexcept:
    """Milliseconds a message may wait: the smaller of the queue's TTL and its own expiration; -1 is
    no limit. The properties are known to be well formed, the expiration to be a number, of which a
    sign can only stand before a zero."""
    cdef const uint8_t* p = message.properties
    cdef uint16_t flags = load16(p)
    cdef int64_t own = 0
    cdef uint8_t length, i
    cdef int bit
    if not flags >> 8 & 1:
        return queue_ttl
    p += 2
    for bit in range(15, 8, -1):
        if not flags >> bit & 1:
            continue
        if bit == 13:
            p += 4 + load32(p)
        elif bit == 12 or bit == 11:
            p += 1
        else:
            p += 1 + <uint32_t> p[0]
    length = p[0]
    for i in range(1, length + 1):
        if p[i] == b"-":
            continue
        own = own * 10 + (p[i] - 48)
    return own if queue_ttl < 0 or own < queue_ttl else queue_ttl
