from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.contracts cimport Consumer
from broker.kernel.ledger cimport Ledger, Unacked
from broker.kernel.message cimport Message
from broker.kernel.turn cimport Task
from broker.wire.replying cimport ReplyingChannel


cdef enum:
    FRAME_END = 0xCE
    TRACED_BODY = 64 << 10       # as `broker.settings.bounds.TRACED_BODY_MAX`


# What settling a delivery means.
cdef enum:
    SETTLE_ACK = 0
    SETTLE_REJECT = 1
    SETTLE_REQUEUE = 2


cdef inline void put_names(uint8_t* p, const Message* message) noexcept:
    """Exchange and routing key as short strings, with which basic.deliver and basic.return end, and
    the frame's end."""
    p[0] = message.exchange_length
    memcpy(p + 1, message.exchange, message.exchange_length)
    p += 1 + message.exchange_length
    p[0] = message.routing_key_length
    memcpy(p + 1, message.routing_key, message.routing_key_length)
    p[1 + message.routing_key_length] = FRAME_END


cdef class SharedRoom(Task):
    cdef DeliveringChannel channel
    cdef object waiting                  # consumers, in the order in which they are served

    cdef int refuse(self, Consumer consumer) except -1
    cdef int end(self) except -1


cdef class DeliveringChannel(ReplyingChannel):
    cdef public bint traced              # what it publishes and gets goes to the firehose, too
    cdef public bint closing             # channel.close is sent; everything but close-ok is ignored
    cdef readonly Ledger ledger
    cdef readonly dict consumers
    cdef set lingering                   # consumers that are gone but have entries in the ledger
    cdef public uint32_t prefetch_count
    cdef readonly uint32_t global_prefetch_count
    cdef uint32_t consumer_unacked
    cdef SharedRoom room                 # None until a limit for the whole channel is set
    cdef public object qos_undo          # what the last basic.qos changed of running consumers
    cdef public bint flowing
    cdef uint64_t max_unacked
    cdef public object ack_timeouts      # None until a delivery could become overdue
    cdef public bint transactional       # publishes and acks are put aside
    cdef public object transaction       # where; None until tx.select
    cdef readonly uint64_t delivered
    cdef readonly uint64_t delivered_no_ack
    cdef readonly uint64_t got
    cdef readonly uint64_t got_no_ack
    cdef public uint64_t got_empty
    cdef readonly uint64_t acked
    cdef readonly uint64_t redelivered
    cdef readonly uint64_t rejected      # without requeue
    cdef uint64_t delivered_bytes        # bodies of `delivered`, and so on
    cdef uint64_t delivered_no_ack_bytes
    cdef uint64_t got_bytes
    cdef uint64_t got_no_ack_bytes
    cdef uint64_t acked_bytes
    cdef uint64_t redelivered_bytes
    cdef uint64_t rejected_bytes

    cdef bint make_wait(self, Consumer consumer) noexcept
    cdef int trace_delivery(self, Consumer consumer, Message* message, bint redelivered) except -1
    cdef size_t content_room(self, Message* message) noexcept
    cdef int write_content(self, Message* message) except -1
    cdef int on_settle(self, uint64_t tag, bint multiple, int how) except -1
    cdef int deliver_before_requeue(self, uint64_t first, uint64_t last) except -1
    cdef int settle_multiple(self, uint64_t last, int how) except -1
    cdef int settle_up_to(self, uint64_t last, int how) except -1
    cdef int settle_entry(self, Unacked* entry, int how) except -1
    cdef int touch_queues(self) except -1
