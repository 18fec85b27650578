# cython: language_level=3
"""A channel's deliveries: written, entered in the ledger, and settled."""

from collections import deque

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.buffer cimport Buffer, store16, store32, store64
from broker.kernel.contracts cimport Consumer, Queue
from broker.kernel.large_body cimport copy_of, LargeBody
from broker.kernel.ledger cimport Unacked
from broker.kernel.message cimport Message, Place
from broker.schema.errors import PreconditionFailed
from broker.wire.ack_timeouts import AckTimeouts
from broker.wire.output cimport Output, put_body
from broker.wire.replying cimport ReplyingChannel

cdef enum:
    SETTLED_AT_ONCE = 256        # deliveries that long work settles in a step
    SETTLED_IN_TURN = 1024       # one method settles so many in its turn; more are long work
    IN_PARTS = 1 << 20           # a body from this length on is written as the client takes it


cdef class SharedRoom(Task):
    """Consumers that wait for room under a channel's own prefetch (basic.qos with global). They get
    room in turn: first those that have had none, then the one that was refused first. So a queue
    does not take all the room because it delivers first."""

    def __init__(self, DeliveringChannel channel):
        self.channel = channel
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
        self.channel = None
        return 0

    cdef int work(self) except -1:
        """Room has come: a message for each in turn, and again. Consumers without a message to
        take wait no longer: their queue asks again when it has one."""
        cdef DeliveringChannel channel = self.channel
        cdef Consumer consumer
        cdef uint32_t limit
        if channel is None:
            return 0
        limit = channel.global_prefetch_count
        try:
            while self.waiting and (limit == 0 or channel.consumer_unacked < limit):
                consumer = <Consumer> self.waiting.popleft()
                consumer.waits = False
                if not consumer.active:
                    continue
                # The last one that waits may have all that is left.
                channel.global_prefetch_count = (
                    channel.consumer_unacked + 1 if limit and self.waiting else limit)
                consumer.queue.work()
        finally:
            channel.global_prefetch_count = limit
        return 0


cdef class DeliveringChannel(ReplyingChannel):
    """With consumers and unacked messages."""

    @property
    def messages_unacknowledged(self):
        return self.ledger.count

    # -- deliveries --------------------------------------------------------------------------------

    cdef bint can_take(self, Consumer consumer) noexcept:
        cdef Output output = self.output
        if output.is_full() or not self.flowing:
            return False
        if self.global_prefetch_count and self.consumer_unacked >= self.global_prefetch_count:
            return self.make_wait(consumer)
        if consumer.no_ack:
            return True
        if consumer.prefetch_count and consumer.unacked >= consumer.prefetch_count:
            return False
        return self.ledger.count < self.max_unacked

    cdef bint make_wait(self, Consumer consumer) noexcept:
        """No room under the limit of the channel: notes the waiting consumer, unless its own limit
        refuses it, too. Consumers without acks do not count, but wait like the others, as in
        RabbitMQ."""
        if (consumer.no_ack or not consumer.prefetch_count
                or consumer.unacked < consumer.prefetch_count):
            self.room.refuse(consumer)
        return False

    cdef int deliver(self, Consumer consumer, Message* message, Place* place) except -1:
        """basic.deliver with its content."""
        cdef Buffer out = self.output.out
        cdef Unacked* entry
        cdef uint64_t tag
        cdef uint8_t* p
        cdef uint8_t* start
        cdef uint32_t tag_length = <uint32_t> len(consumer.wire_tag)
        cdef uint32_t payload = (4 + tag_length + 9 + 1 + message.exchange_length
                                 + 1 + message.routing_key_length)
        # Memory first: where there is none, nothing was delivered.
        start = out.room(payload + 8 + self.content_room(message))
        tag = self.ledger.next
        if consumer.no_ack:
            self.ledger.skip_tag()
            self.delivered_no_ack += 1
            self.delivered_no_ack_bytes += message.body_length
            if consumer.queue.durable:
                self.acks_unwritten = True
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
            self.delivered_bytes += message.body_length
        consumer.delivered += 1
        if place.redelivered:
            self.redelivered += 1
            self.redelivered_bytes += message.body_length
        start[0] = 1
        store16(start + 1, self.number)
        store32(start + 3, payload)
        store16(start + 7, 60)
        store16(start + 9, 60)
        p = start + 11
        memcpy(p, <char*> consumer.wire_tag, tag_length)
        p += tag_length
        store64(p, tag)
        p[8] = <uint8_t> place.redelivered
        put_names(p + 9, message)
        out.length += payload + 8
        self.write_content(message)
        if self.traced:
            self.trace_delivery(consumer, message, place.redelivered)
        return self.output.touch()

    cdef int trace_delivery(self, Consumer consumer, Message* message, bint redelivered) except -1:
        self.connection.trace_delivery(
            self, message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length],
            message.body[:min(message.body_length, <uint32_t> TRACED_BODY)],
            consumer.queue, redelivered)
        return 0

    cdef size_t content_room(self, Message* message) noexcept:
        """What `write_content` writes at most."""
        if message.large != NULL or message.body_length >= IN_PARTS:
            return <size_t> 8 + 12 + message.properties_length
        return (<size_t> 8 + 12 + message.properties_length + message.body_length
                + (message.body_length // (self.output.frame_max - 8) + 1) * 8)

    cdef int write_content(self, Message* message) except -1:
        """Content header and body frames, for which there is room."""
        cdef Buffer out = self.output.out
        cdef uint32_t part_max = self.output.frame_max - 8
        cdef uint32_t left = message.body_length
        cdef const uint8_t* body = message.body
        cdef uint8_t* p = out.data + out.length
        p[0] = 2
        store16(p + 1, self.number)
        store32(p + 3, 12 + message.properties_length)
        store16(p + 7, 60)
        store16(p + 9, 0)
        store64(p + 11, message.body_length)
        memcpy(p + 19, message.properties, message.properties_length)
        p += 19 + message.properties_length
        p[0] = FRAME_END
        p += 1
        if message.large != NULL or left >= IN_PARTS:
            out.length = p - out.data
            return self.output.add_large(
                <LargeBody> message.large if message.large != NULL else copy_of(body, left),
                self.number)
        p = put_body(p, self.number, body, left, part_max)
        out.length = p - out.data
        return 0

    def take_got(self, Consumer consumer, tuple place):
        """The answer to a basic.get is written now: its delivery tag, entered in the ledger where
        it wants an ack."""
        cdef Unacked* entry
        cdef uint64_t tag = self.ledger.next
        if place[3]:
            self.redelivered += 1
            self.redelivered_bytes += <uint32_t> place[4]
        if consumer.no_ack:
            self.ledger.skip_tag()
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
        self.watch_acks_of(consumer)
        return tag

    # -- settling ----------------------------------------------------------------------------------

    cdef int on_settle(self, uint64_t tag, bint multiple, int how) except -1:
        """basic.ack, nack or reject of one delivery, or of all up to it."""
        cdef Unacked* entry
        cdef uint64_t newest = self.ledger.next - 1
        if multiple and tag == 0:
            if self.transactional:
                self.transaction.settle_all(newest, how)
                return 0
            return self.settle_multiple(newest, how)
        entry = self.ledger.find(tag)
        if entry == NULL:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if self.transactional:
            self.transaction.settle(tag, multiple, how)
            return 0
        if multiple:
            return self.settle_multiple(tag, how)
        if how == SETTLE_REQUEUE:
            self.deliver_before_requeue(tag, tag)
            entry = self.ledger.find(tag)
        return self.settle_entry(entry, how)

    cdef int settle_multiple(self, uint64_t last, int how) except -1:
        """Settles all up to a delivery: at once, or in slices where there are very many. Some
        hundred take as long as a method that is asked once in a while."""
        cdef uint64_t count = self.ledger.position_of(last + 1) - self.ledger.first
        if count > SETTLED_IN_TURN:
            self.connection.settle_in_slices(self, last, how)
            return 0
        if how == SETTLE_REQUEUE:
            self.deliver_before_requeue(0, last)
        self.settle_up_to(last, how)
        if count >= SETTLED_AT_ONCE:
            self.connection.count_work(1)
        return 0

    def settle_slice(self, uint64_t since, uint64_t last, int how):
        """Settles some hundred of the deliveries with tags from `since` to `last`, except those
        that a transaction settles. Returns the tag to continue from, 0 at the end."""
        cdef Ledger ledger = self.ledger
        cdef uint64_t moves = ledger.moves
        cdef Unacked* entry
        cdef uint64_t at = ledger.position_of(since)
        cdef uint64_t end = ledger.position_of(last + 1)
        cdef uint64_t tag
        cdef uint64_t follows = 0
        transaction = self.transaction
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

    def settle_committed(self, uint64_t tag, bint multiple, int how):
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
        return self.settle_slice(1, tag, how) != 0

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
        while at < end:
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
            self.consumer_unacked -= 1
            if self.consumer_unacked + 1 == self.global_prefetch_count:
                # Told once, however many deliveries are settled.
                if self.room.waiting:
                    self.output.turn.touch_share(self.room)
        if self.ledger.count + 1 == self.max_unacked:
            self.touch_queues()
        if how == SETTLE_REQUEUE:
            queue.requeue(&place)
        else:
            queue.settle(&place, how == SETTLE_ACK)
        if queue.durable:
            self.acks_unwritten = True
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

    @property
    def next_tag(self):
        """The delivery tag that comes next."""
        return self.ledger.next

    def holders(self):
        """The consumers, gets included, that have unacknowledged deliveries."""
        found = [each for each in self.consumers.values() if (<Consumer> each).unacked]
        if self.lingering is not None:
            found += self.lingering
        return found

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

    def set_prefetch(self, uint32_t count):
        """Changes the prefetch of the channel's consumers, those that run too; 0 is none."""
        cdef Consumer consumer
        self.prefetch_count = count
        for consumer in self.consumers.values():
            consumer.prefetch_count = count
        self.resume()

    def watch_acks(self):
        """The broker's consumer timeout changed: looks through all consumers."""
        if not self.closing:
            if self.ack_timeouts is None:
                self.ack_timeouts = AckTimeouts(self, self.connection)
            self.ack_timeouts.watch()

    def watch_acks_of(self, Consumer consumer):
        """A consumer came, a message was got, or the consumer timeout of its queue changed. No look
        at the others: there may be many, and they may come or change one by one."""
        if consumer.no_ack:
            return
        if self.ack_timeouts is not None:
            self.ack_timeouts.add(consumer)
        elif self.connection.has_ack_timeout(consumer.queue):
            self.watch_acks()

    def deliver_pending(self):
        """Lets the queues of its consumers deliver what came for them in this turn so far."""
        cdef Consumer consumer
        for consumer in self.consumers.values():
            consumer.queue.deliver_pending()

    def set_global_prefetch(self, uint32_t count):
        """basic.qos with global: how many unacknowledged deliveries the consumers may have
        together; 0 is any number. Their own limits hold, too."""
        self.global_prefetch_count = count
        if self.room is None:
            self.room = SharedRoom(self)
        self.output.turn.touch_share(self.room)

    cdef int touch_queues(self) except -1:
        cdef Consumer consumer
        for consumer in self.consumers.values():
            consumer.queue.touch()
        return 0

    def resume(self):
        """Deliveries and gets may continue: the socket took its data, or flow was turned on."""
        self.touch_queues()
        if self.gets is not None:
            self.gets.go_on()

    def add_consumer(self, Consumer consumer):
        self.consumers[consumer.tag] = consumer
        self.watch_acks_of(consumer)

    def remove_consumer(self, Consumer consumer):
        """The consumer has ended; it stays alive while the ledger points to it."""
        self.consumers.pop(consumer.tag, None)
        if consumer.waits:
            consumer.waits = False
            self.room.waiting.remove(consumer)
        if consumer.unacked:
            if self.lingering is None:
                self.lingering = set()
            self.lingering.add(consumer)
