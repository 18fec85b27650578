# cython: language_level=3
"""A channel's deliveries: limited by prefetch, entered in the ledger, and settled."""

from collections import deque

from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.contracts cimport Consumer, Queue
from broker.kernel.ledger cimport Ledger, Unacked
from broker.kernel.message cimport Place, RUN_MAX
from broker.wire.output cimport Output
from broker.wire.replies cimport Replies


cdef class SharedPrefetch(Task):
    """Consumers that wait for room under a channel's own prefetch (basic.qos with global). They get
    room in turn: first those that have had none, then the one that was refused first. So a queue
    does not take all the room because it delivers first."""

    def __init__(self, Deliveries deliveries):
        self.deliveries = deliveries
        self.waiting = deque()

    cdef int refuse(self, Consumer consumer) except -1:
        """There is no room for this consumer now."""
        if consumer.waits:
            return 0
        consumer.waits = True
        if consumer.delivered:
            self.waiting.append(consumer)
        else:
            self.waiting.appendleft(consumer)
        return 0

    cdef int end(self) except -1:
        """The channel ends: no consumer waits any more."""
        cdef Consumer consumer
        for consumer in self.waiting:
            consumer.waits = False
        self.waiting.clear()
        self.deliveries = None
        return 0

    cdef int work(self) except -1:
        """Room has come: a message for each in turn, and again. Consumers without a message to
        take wait no longer: their queue asks again when it has one."""
        cdef Deliveries deliveries = self.deliveries
        cdef Consumer consumer
        cdef uint32_t limit
        if deliveries is None:
            return 0
        limit = deliveries.global_prefetch_count
        try:
            while self.waiting and (limit == 0 or deliveries.consumer_unacked < limit):
                consumer = <Consumer> self.waiting.popleft()
                consumer.waits = False
                if not consumer.active:
                    continue
                # The last one that waits may have all that is left.
                deliveries.global_prefetch_count = (
                    deliveries.consumer_unacked + 1 if limit and self.waiting else limit)
                consumer.queue.work()
        finally:
            deliveries.global_prefetch_count = limit
        return 0


cdef class Deliveries:
    """The consumers of a channel and what they have not acknowledged. At most `max_unacked`
    deliveries are open at a time. Replies wait until acks of durable queues are written."""

    def __init__(self, Output output, Replies replies, uint64_t max_unacked):
        self.output = output
        self.replies = replies
        self.max_unacked = max_unacked
        self.ledger = Ledger()
        self.consumers = {}
        self.flowing = True

    # -- consumers ---------------------------------------------------------------------------------

    def add_consumer(self, Consumer consumer):
        self.consumers[consumer.tag] = consumer

    def remove_consumer(self, Consumer consumer):
        """The consumer has ended; it stays alive while the ledger points to it."""
        self.consumers.pop(consumer.tag, None)
        if consumer.waits:
            consumer.waits = False
            self.shared.waiting.remove(consumer)
        if consumer.unacked:
            if self.lingering is None:
                self.lingering = set()
            self.lingering.add(consumer)

    def holders(self):
        """The consumers, gets included, that have unacknowledged deliveries."""
        found = [each for each in self.consumers.values() if (<Consumer> each).unacked]
        if self.lingering is not None:
            found += self.lingering
        return found

    def deliver_pending(self):
        """Lets the queues of its consumers deliver what came for them in this turn so far."""
        cdef Consumer consumer
        for consumer in self.consumers.values():
            consumer.queue.deliver_pending()

    cdef int touch_queues(self) except -1:
        cdef Consumer consumer
        for consumer in self.consumers.values():
            consumer.queue.touch()
        return 0

    # -- prefetch ----------------------------------------------------------------------------------

    def set_prefetch(self, uint32_t count):
        """Changes the prefetch of the channel's consumers, those that run too; 0 is none."""
        cdef Consumer consumer
        self.prefetch_count = count
        for consumer in self.consumers.values():
            consumer.prefetch_count = count
        self.touch_queues()

    def set_global_prefetch(self, uint32_t count):
        """basic.qos with global: how many unacknowledged deliveries the consumers may have
        together; 0 is any number. Their own limits hold, too."""
        self.global_prefetch_count = count
        if self.shared is None:
            self.shared = SharedPrefetch(self)
        self.output.turn.touch_share(self.shared)

    cdef bint make_wait(self, Consumer consumer) noexcept:
        """No room under the limit of the channel: notes the waiting consumer, unless its own limit
        refuses it, too. Consumers without acks do not count, but wait like the others, as in
        RabbitMQ."""
        if (consumer.no_ack or not consumer.prefetch_count
                or consumer.unacked < consumer.prefetch_count):
            self.shared.refuse(consumer)
        return False

    # -- basic.get ---------------------------------------------------------------------------------

    def take_got(self, Consumer consumer, tuple place):
        """The answer to a basic.get is written now: its delivery tag, entered in the ledger where
        it wants an ack."""
        cdef Unacked* entry
        cdef uint64_t tag = self.ledger.next
        if place[3]:
            self.redelivered += 1
            self.redelivered_bytes += <uint32_t> place[4]
        if consumer.no_ack:
            self.ledger.skip_tags(1)
            self.got_no_ack += 1
            self.got_no_ack_bytes += <uint32_t> place[4]
            return tag
        entry = self.ledger.add()
        entry.consumer = <void*> consumer
        entry.segment, entry.position, entry.length, redelivered, body_length = place
        entry.word = <uint32_t> body_length << 1 | <uint32_t> redelivered
        consumer.unacked += 1
        self.got += 1
        self.got_bytes += <uint32_t> body_length
        if self.lingering is None:
            self.lingering = set()
        self.lingering.add(consumer)
        return tag

    def count_empty(self):
        """A basic.get found its queue empty."""
        self.got_empty += 1

    # -- settling ----------------------------------------------------------------------------------

    cdef int deliver_before_requeue(self, uint64_t first, uint64_t last) except -1:
        """Deliveries with tags from `first` to `last` go back to their queues: what these have to
        deliver already comes before. Deliveries may move the ledger's entries."""
        cdef Unacked* entry
        cdef Queue queue
        cdef uint64_t at
        cdef dict queues = {}
        for at in range(self.ledger.position_of(first), self.ledger.position_of(last + 1)):
            entry = self.ledger.open_at(at)
            if entry != NULL:
                queues[(<Consumer> entry.consumer).queue] = None
        for queue in queues:
            queue.deliver_pending()
        return 0

    cdef int settle_up_to(self, uint64_t last, int how) except -1:
        cdef Ledger ledger = self.ledger
        cdef uint64_t moves = ledger.moves
        cdef Unacked* entry
        cdef uint64_t at = ledger.first
        cdef uint64_t end = ledger.position_of(last + 1)
        cdef uint32_t count
        while at < end:
            if how == SETTLE_ACK:
                count = self.ack_run(at, end)
                if count:
                    at += count
                    continue
            entry = ledger.open_at(at)
            at += 1
            if entry != NULL:
                self.settle_entry(entry, how)
                if ledger.moves != moves:
                    # A delivery in between has moved the others: what is settled is passed over.
                    moves = ledger.moves
                    at = ledger.first
                    end = ledger.position_of(last + 1)
        return 0

    cdef uint32_t ack_run(self, uint64_t at, uint64_t end) except? 0:
        """Acks the deliveries at [at, end), as many of them as one consumer got from one segment of
        a queue that takes runs. Returns how many; 0: `settle_entry` settles them."""
        cdef Ledger ledger = self.ledger
        cdef Place[RUN_MAX] places
        cdef Unacked* entry = ledger.open_at(at)
        cdef Unacked* first = entry
        cdef Consumer consumer
        cdef uint32_t count = 0
        cdef uint64_t size = 0
        if entry == NULL or entry.segment == 0:
            return 0
        consumer = <Consumer> entry.consumer
        if not consumer.queue.takes_runs():
            return 0
        while entry.consumer == first.consumer and entry.segment == first.segment:
            places[count].segment = entry.segment
            places[count].position = entry.position
            places[count].length = entry.length
            places[count].redelivered = entry.word & 1
            places[count].body_length = entry.word >> 1
            size += entry.word >> 1
            count += 1
            if count == RUN_MAX or at + count == end:
                break
            entry = &ledger.entries[(at + count) & ledger.mask]
        consumer.queue.ack_run(places, count)
        ledger.settle_run(at, count)
        consumer.unacked -= count
        if len(consumer.wire_tag) > 1:
            self.give_room(count)
        if ledger.count < self.max_unacked <= ledger.count + count:
            self.touch_queues()
        if consumer.queue.durable:
            self.replies.note_ack()
        self.acked += count
        self.acked_bytes += size
        consumer.acked += count
        if consumer.active:
            consumer.queue.touch()
        if self.lingering is not None and consumer.unacked == 0:
            self.lingering.discard(consumer)
        return count

    cdef int give_room(self, uint32_t count) except -1:
        """Deliveries of consumers are settled: those that wait for room are touched, once."""
        self.consumer_unacked -= count
        if (self.consumer_unacked < self.global_prefetch_count <= self.consumer_unacked + count
                and self.shared.waiting):
            self.output.turn.touch_share(self.shared)
        return 0

    cdef int settle_entry(self, Unacked* entry, int how) except -1:
        cdef Consumer consumer = <Consumer> entry.consumer
        cdef Queue queue = consumer.queue
        cdef Place place
        place.segment = entry.segment
        place.position = entry.position
        place.length = entry.length
        place.redelivered = entry.word & 1
        place.body_length = entry.word >> 1
        self.ledger.settle(entry)
        consumer.unacked -= 1
        if len(consumer.wire_tag) > 1:
            self.give_room(1)
        if self.ledger.count + 1 == self.max_unacked:
            self.touch_queues()
        if how == SETTLE_REQUEUE:
            queue.requeue(&place)
        else:
            queue.settle(&place, how == SETTLE_ACK)
        if queue.durable:
            self.replies.note_ack()
        if how == SETTLE_ACK:
            self.acked += 1
            self.acked_bytes += place.body_length
            consumer.acked += 1
        elif how == SETTLE_REJECT:
            self.rejected += 1
            self.rejected_bytes += place.body_length
        if consumer.active:
            queue.touch()
        if self.lingering is not None and consumer.unacked == 0:
            self.lingering.discard(consumer)
        return 0

    def settle_slice(self, uint64_t since, uint64_t last, int how, transaction):
        """Settles some hundred of the deliveries with tags from `since` to `last`, except those
        that the transaction, if there is one, settles. Returns the tag to continue from, 0 at the
        end."""
        cdef Ledger ledger = self.ledger
        cdef uint64_t moves = ledger.moves
        cdef Unacked* entry
        cdef uint64_t at = ledger.position_of(since)
        cdef uint64_t end = ledger.position_of(last + 1)
        cdef uint64_t tag
        cdef uint64_t follows = 0
        if end > at + SETTLED_AT_ONCE:
            end = at + SETTLED_AT_ONCE
            follows = ledger.tag_at(end)
        while at < end:
            entry = ledger.open_at(at)
            if entry != NULL:
                tag = ledger.tag_at(at)
                if transaction is None or not transaction.settles_tag(tag):
                    self.settle_entry(entry, how)
                    if ledger.moves != moves:
                        # A delivery in between has moved the others.
                        return tag + 1 if tag < last else 0
            at += 1
        return follows

    def settle_committed(self, uint64_t tag, bint multiple, int how, transaction):
        """Settles what a transaction had put aside, some hundred deliveries at a time. Returns
        whether there are more."""
        cdef Unacked* entry
        cdef uint64_t end
        if not multiple:
            if how == SETTLE_REQUEUE:
                self.deliver_before_requeue(tag, tag)
            entry = self.ledger.find(tag)
            if entry != NULL:
                self.settle_entry(entry, how)
            return False
        # Settled entries at the front go, so that each part begins where the last one ended.
        end = min(self.ledger.position_of(tag + 1), self.ledger.first + SETTLED_AT_ONCE)
        if how == SETTLE_REQUEUE and end > self.ledger.first:
            self.deliver_before_requeue(0, self.ledger.tag_at(end - 1))
        return self.settle_slice(1, tag, how, transaction) != 0

    # -- what others ask ---------------------------------------------------------------------------

    @property
    def next_tag(self):
        """The delivery tag that comes next."""
        return self.ledger.next

    def first_held(self, uint64_t since, uint64_t before, set queues):
        """The lowest tag in [since, before) whose delivery, from one of the queues, is
        unacknowledged; `before` if there is none."""
        cdef Unacked* entry
        cdef uint64_t at
        for at in range(self.ledger.position_of(since), self.ledger.position_of(before)):
            entry = self.ledger.open_at(at)
            if entry != NULL and (<Consumer> entry.consumer).queue in queues:
                return self.ledger.tag_at(at)
        return before

    def unacked_of(self, queues, uint64_t since, int most, int looks):
        """The unacknowledged deliveries of some queues from tag `since` on: at most `most` rows of
        (tag, consumer's tag, queue, bytes of the body, whether it was redelivered), and the tag to
        continue from, 0 at the end. Reads at most `looks` entries, so that a call is short."""
        cdef Unacked* entry
        cdef uint64_t at = self.ledger.position_of(since)
        cdef uint64_t end = min(self.ledger.end, at + looks)
        cdef Consumer consumer
        rows = []
        while at < end and len(rows) < most:
            entry = self.ledger.open_at(at)
            if entry != NULL:
                consumer = <Consumer> entry.consumer
                if consumer.queue in queues:
                    rows.append((self.ledger.tag_at(at), consumer.tag, consumer.queue,
                                 entry.word >> 1, bool(entry.word & 1)))
            at += 1
        return rows, self.ledger.tag_at(at) if at < self.ledger.end else 0

    # -- end ---------------------------------------------------------------------------------------

    def stop(self):
        """The connection ends: nothing is delivered any more."""
        self.flowing = False

    def end(self):
        """The channel has ended: no consumer waits any more."""
        if self.shared is not None:
            self.shared.end()
        self.qos_undo = None
