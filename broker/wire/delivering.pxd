from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.ledger cimport Ledger, Unacked
from broker.kernel.message cimport Message
from broker.wire.replying cimport ReplyingChannel


cdef enum:
    SETTLE_ACK = 0
    SETTLE_REJECT = 1
    SETTLE_REQUEUE = 2


cdef class DeliveringChannel(ReplyingChannel):
    cdef public bint closing             # channel.close is sent; everything but close-ok is ignored
    cdef readonly Ledger ledger
    cdef readonly dict consumers
    cdef set lingering                   # consumers that are gone but have entries in the ledger
    cdef public uint32_t prefetch_count
    cdef public uint32_t global_prefetch_count
    cdef uint32_t consumer_unacked
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

    cdef size_t content_room(self, Message* message) noexcept
    cdef int write_content(self, Message* message) except -1
    cdef int on_settle(self, uint64_t tag, bint multiple, int how) except -1
    cdef int settle_up_to(self, uint64_t last, int how) except -1
    cdef int settle_entry(self, Unacked* entry, int how) except -1
    cdef int touch_queues(self) except -1
