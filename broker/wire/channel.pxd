from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from broker.contracts cimport Channel, Consumer, Exchange, Topology
from broker.kernel.buffer cimport Buffer
from broker.kernel.ledger cimport Ledger, Unacked
from broker.kernel.message cimport Message, Place
from broker.store.bodies cimport BodyStore
from broker.store.content_file cimport ContentFile
from broker.store.persister cimport Persister
from broker.wire.held_confirms cimport HeldConfirms
from broker.wire.held_replies cimport HeldReplies
from broker.wire.output cimport Output


cdef enum:
    EXPECT_METHOD = 0
    EXPECT_HEADER = 1
    EXPECT_BODY = 2

cdef enum:
    SETTLE_ACK = 0
    SETTLE_REJECT = 1
    SETTLE_REQUEUE = 2


cdef class WireChannel(Channel):
    cdef readonly Output output
    cdef readonly object connection
    cdef readonly uint16_t number
    cdef Persister persister
    cdef BodyStore bodies
    cdef uint32_t share_from             # bodies of this length on are shared by several queues
    cdef Topology topology
    cdef public bint closing             # channel.close is sent; everything but close-ok is ignored
    # content
    cdef int expect
    cdef const uint8_t* method           # payload of basic.publish behind class and method id
    cdef uint32_t method_length
    cdef const uint8_t* properties
    cdef uint32_t properties_length
    cdef uint64_t body_length
    cdef uint64_t body_received
    cdef Buffer kept                     # method, properties and body once they outlive their chunk
    cdef bint is_kept
    cdef bint body_kept
    cdef uint64_t body_in_memory         # a larger body that comes in parts is collected in a file
    cdef ContentFile collected           # that file, or None
    # route memo
    cdef Buffer memo
    cdef uint64_t memo_version
    cdef Exchange memo_exchange
    cdef tuple memo_targets
    # publishing
    cdef readonly bint confirm_mode
    cdef uint64_t sequence               # of the last publish
    cdef uint64_t settled_sequence       # publishes up to here may be acked
    cdef uint64_t told_sequence
    cdef uint32_t serial                 # among the broker's channels that publish with confirms
    cdef list early                      # answers to the publish at hand, before it is counted
    cdef HeldConfirms held_confirms      # None while all confirms wait for the disk alone
    cdef public bint transactional
    cdef public list transaction_publishes
    cdef public list transaction_settles
    cdef uint64_t max_message_size
    cdef public bytes replaced           # properties that `special` rewrote for the message at hand
    # consuming
    cdef readonly Ledger ledger
    cdef readonly dict consumers
    cdef set lingering                   # consumers that are gone but have entries in the ledger
    cdef public uint32_t prefetch_count
    cdef public uint32_t global_prefetch_count
    cdef uint32_t consumer_unacked
    cdef public bint flowing
    cdef uint64_t max_unacked
    cdef public bint acks_unwritten      # replies wait until they are
    cdef public object ack_timeouts      # None until a delivery could become overdue
    # replies
    cdef HeldReplies held                # None while replies go out at once
    cdef public object gets              # None until a basic.get
    cdef public str last_queue
    cdef public str reply_name           # this channel's direct reply-to queue
    # counters
    cdef readonly uint64_t published
    cdef readonly uint64_t confirmed
    cdef readonly uint64_t returned
    cdef readonly uint64_t dropped
    cdef readonly uint64_t delivered
    cdef readonly uint64_t delivered_no_ack
    cdef readonly uint64_t got
    cdef readonly uint64_t got_no_ack
    cdef public uint64_t got_empty
    cdef readonly uint64_t acked
    cdef readonly uint64_t redelivered
    cdef public object gauge

    cdef int on_publish(self, const uint8_t* payload, uint32_t length) except -1
    cdef int on_header(self, const uint8_t* payload, uint32_t length) except -1
    cdef int on_body(self, const uint8_t* payload, uint32_t length) except -1
    cdef int on_settle(self, uint64_t tag, bint multiple, int how) except -1
    cdef int keep(self) except -1
    cdef int content(self, const uint8_t* body) except -1
    cdef int drop_collected(self) except -1
    cdef int collect(self, const uint8_t* payload, uint32_t length) except -1
    cdef int route(self, Message* message, bint mandatory) except -1
    cdef int hold_for_acks(self) except -1
    cdef int send_held(self, HeldReplies held) except -1
    cdef int hold_confirm(self, int held, bint waits, bint rejected) except -1
    cdef int write_held(self) except -1
    cdef int publish_shared(self, Message* message, tuple targets, int* held) except -1
    cdef int settle_entry(self, Unacked* entry, uint64_t tag, int how) except -1
    cdef int write_return(self, Message* message) except -1
    cdef int write_content(self, Message* message) except -1
    cdef int touch_queues(self) except -1
