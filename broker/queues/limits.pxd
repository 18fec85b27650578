from libc.stdint cimport int64_t, uint8_t, uint32_t

from broker.kernel.message cimport Message


# ClassicQueue.features: what a queue needs beyond the fast path.
cdef enum:
    HAS_LENGTH_LIMIT = 1
    HAS_EXPIRY = 2               # a TTL of its own, or a message with one was published
    SINGLE_ACTIVE = 4
    HAS_DEAD_LETTERS = 8
    HAS_DELIVERY_LIMIT = 16
    CONFIRM_ON_ACK = 32
    IS_LEAN = 64
    DEDUPLICATES = 128
    HAS_PRIORITIES = 512
    PAUSED = 256                 # paused by an operator, not by a limit: no deliveries


cdef class Limits:
    cdef readonly int64_t message_ttl        # ms; -1 = none, as everywhere here
    cdef readonly int64_t expires
    cdef readonly int64_t max_length
    cdef readonly int64_t max_length_bytes
    cdef readonly bint rejects
    cdef readonly bint dead_letters_rejected  # reject-publish-dlx
    cdef readonly bint single_active
    cdef readonly str dead_letter_exchange   # None = there is none
    cdef readonly str dead_letter_routing_key
    cdef readonly bint confirm_on_ack        # x-confirm-on: ack or ack-lean
    cdef readonly bint is_lean
    cdef readonly int64_t delivery_limit     # times a message may come back; -1 = any number
    cdef readonly int64_t max_priority       # 0 = one level, as without
    cdef readonly int64_t consumer_timeout   # ms; -1 = the broker's, 0 = none

    cdef uint32_t features(self) noexcept
    cdef bint are_exceeded(self, int64_t count, int64_t size) noexcept


cdef class Expiry:
    cdef object timer                        # None while no message is known to expire
    cdef int64_t at                          # deadline that it waits for, ms of our clock

    cdef int wait_until(self, int64_t deadline, later, due) except -1
    cdef int stop(self) except -1


cdef int64_t ttl_of(Message* message, int64_t queue_ttl) noexcept
