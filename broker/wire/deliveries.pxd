cimport cython
from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.contracts cimport Consumer
from broker.kernel.ledger cimport Ledger, Unacked
from broker.kernel.message cimport Place
from broker.kernel.turn cimport Task
from broker.wire.output cimport Output
from broker.wire.replies cimport Replies


# What settling a delivery means.
cdef enum:
    SETTLE_ACK = 0
    SETTLE_REJECT = 1
    SETTLE_REQUEUE = 2


cdef enum:
    SETTLED_AT_ONCE = 256        # deliveries that long work settles in a step


cdef class SharedPrefetch(Task):
    cdef Deliveries deliveries
    cdef object waiting                  # consumers, in the order in which they are served

    cdef int refuse(self, Consumer consumer) except -1
    cdef int end(self) except -1


cdef class Deliveries:
    cdef Output output
    cdef Replies replies
    cdef readonly Ledger ledger
    cdef readonly dict consumers
    cdef set lingering                   # consumers that ended and have entries in the ledger
    cdef public uint32_t prefetch_count
    cdef readonly uint32_t global_prefetch_count
    cdef uint32_t consumer_unacked
    cdef SharedPrefetch shared           # None until a limit for the whole channel is set
    cdef public object qos_undo          # what the last basic.qos changed of running consumers
    cdef bint flowing
    cdef uint64_t max_unacked
    cdef readonly uint64_t delivered
    cdef readonly uint64_t delivered_no_ack
    cdef readonly uint64_t got
    cdef readonly uint64_t got_no_ack
    cdef readonly uint64_t got_empty
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
    cdef int deliver_before_requeue(self, uint64_t first, uint64_t last) except -1
    cdef int settle_up_to(self, uint64_t last, int how) except -1
    cdef uint32_t ack_run(self, uint64_t at, uint64_t end) except? 0
    cdef int settle_entry(self, Unacked* entry, int how) except -1
    cdef int give_room(self, uint32_t count) except -1
    cdef int touch_queues(self) except -1

    @cython.final
    cdef inline bint has_room(self, Consumer consumer) noexcept:
        """Whether the limits allow one more delivery to the consumer."""
        if not self.flowing:
            return False
        if self.global_prefetch_count and self.consumer_unacked >= self.global_prefetch_count:
            return self.make_wait(consumer)
        if consumer.no_ack:
            return True
        if consumer.prefetch_count and consumer.unacked >= consumer.prefetch_count:
            return False
        return self.ledger.count < self.max_unacked

    @cython.final
    cdef inline uint32_t room_for(self, Consumer consumer, uint32_t most) noexcept:
        """How many deliveries the limits allow to the consumer, at most `most`."""
        if not self.has_room(consumer):
            return 0
        if consumer.no_ack:
            return most
        if self.global_prefetch_count:
            most = min(most, self.global_prefetch_count - self.consumer_unacked)
        if consumer.prefetch_count:
            most = min(most, consumer.prefetch_count - consumer.unacked)
        return <uint32_t> min(<uint64_t> most, self.max_unacked - self.ledger.count)

    @cython.final
    cdef inline uint64_t enter_run(self, Consumer consumer, const Place* places, uint32_t count,
                                   uint64_t size) except 0:
        """`enter` for several deliveries, the first to anyone, of `size` bytes together. Returns
        the first tag. Raises MemoryError and changes nothing."""
        cdef uint64_t tag = self.ledger.next
        cdef Unacked* entry
        cdef uint32_t i
        if consumer.no_ack:
            self.ledger.skip_tags(count)
            self.delivered_no_ack += count
            self.delivered_no_ack_bytes += size
            if consumer.queue.durable:
                self.replies.note_ack()
        else:
            self.ledger.reserve(count)
            for i in range(count):
                entry = self.ledger.put()
                entry.consumer = <void*> consumer
                entry.segment = places[i].segment
                entry.position = places[i].position
                entry.length = places[i].length
                entry.word = places[i].body_length << 1
            consumer.unacked += count
            self.consumer_unacked += count
            self.delivered += count
            self.delivered_bytes += size
        consumer.delivered += count
        return tag

    @cython.final
    cdef inline uint64_t enter(self, Consumer consumer, Place* place, uint32_t length) except 0:
        """Counts a delivery with a body of this length, and enters it in the ledger where it wants
        an ack. Returns its tag. Raises MemoryError and changes nothing."""
        cdef uint64_t tag = self.ledger.next
        cdef Unacked* entry
        if consumer.no_ack:
            self.ledger.skip_tags(1)
            self.delivered_no_ack += 1
            self.delivered_no_ack_bytes += length
            if consumer.queue.durable:
                self.replies.note_ack()
        else:
            entry = self.ledger.add()
            entry.consumer = <void*> consumer
            entry.segment = place.segment
            entry.position = place.position
            entry.length = place.length
            entry.word = place.body_length << 1 | place.redelivered
            consumer.unacked += 1
            self.consumer_unacked += 1
            self.delivered += 1
            self.delivered_bytes += length
        consumer.delivered += 1
        if place.redelivered:
            self.redelivered += 1
            self.redelivered_bytes += length
        return tag
