# cython: language_level=3
"""The classic queue: messages in order, each delivered to one consumer; a message that is not acked
returns to its place.

A publish appends to the store. At the end of the turn, or before a method reads the queue, `work`
delivers the ready messages: to consumers, the highest priority first, those of equal priority in
turn, one message each; then to waiting calls of basic.get.

It inherits from `declared`, `stored`, `consumed`, `confirming`, `dead_lettering` and `limited`, one
layer each.
"""

from collections import OrderedDict

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport Consumer, HELD, NEEDS_SYNC, REJECTED, STORED
from broker.kernel.large_body cimport body_of
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, EXPIRES, HAS_ORIGIN, Message, PERSISTENT, Place,
)
from broker.queues.counted import with_delivery_count
from broker.queues.dying cimport DEAD_DELIVERY_LIMIT, DEAD_EXPIRED, DEAD_REJECTED
from broker.queues.limited cimport LimitedQueue
from broker.queues.limits cimport (
    CONFIRM_ON_ACK, DEDUPLICATES, HAS_DELIVERY_LIMIT, HAS_EXPIRY, HAS_LENGTH_LIMIT, HAS_PRIORITIES,
    IS_LEAN, PAUSED, ttl_of,
)
from broker.store.log.queue_store cimport FOUND, NO_END, QueueStore, WAIT

cdef enum:
    TURN_MESSAGES = 4096         # deliveries of one queue in one turn of the loop
    TURN_BYTES = 4 << 20


cdef class ClassicQueue(LimitedQueue):
    """A queue of type classic, or of type quorum: a durable one with a delivery limit."""

    @property
    def type(self):
        return self.arguments.get("x-queue-type", "classic")

    # -- publishing --------------------------------------------------------------------------------

    cdef int publish(self, Message* message, bint confirm) except -1:
        cdef QueueStore store = self.store
        cdef bint is_held = False
        cdef int answer
        cdef bytes identity = None
        if store is None:
            store = self.open_store()
        if self.features or message.flags & EXPIRES:
            if self.features & HAS_PRIORITIES and self.pending:
                # Earlier messages must be delivered first if a consumer can take them.
                self.deliver_pending()
            if self.features & DEDUPLICATES:
                identity = self._duplicates.identity(
                    message.properties[:message.properties_length])
                if identity is not None and self._duplicates.drops(identity):
                    # The first of them may still be on its way to the disk.
                    return NEEDS_SYNC if self.durable and message.flags & PERSISTENT else STORED
            if self.features & HAS_LENGTH_LIMIT and self.make_room(message) == REJECTED:
                return REJECTED
            if identity is not None:
                self._duplicates.remember(
                    identity, message.properties[:message.properties_length], message.timestamp)
            if message.flags & BODY_IS_REFERENCE and message.body == NULL:
                # Its body may have to be read from disk first, so the message is stored.
                pass
            elif (not self.is_served() and ttl_of(message, self.message_ttl()) == 0
                  and self.may_pass_on()):
                # Its TTL is over before a consumer could take it.
                return self.expire_at_once(message)
            elif self.features & IS_LEAN and store.ready == 0 and self.is_served():
                answer = self.deliver_unstored(message, confirm)
                if answer >= 0:
                    return answer
            if self.features & CONFIRM_ON_ACK and confirm:
                is_held = self.holds = True
                message.origin.boot = self.persister.origins.boot
                message.flags |= HAS_ORIGIN
        if clock.now_ms > self.held_at:
            self.note_held(clock.now_ms)
        store.append(message)
        if is_held:
            message.flags &= ~HAS_ORIGIN
        self.published += 1
        self.bytes_in += message.body_length
        if confirm:
            self.confirmed += 1
        if not self.pending and (self._consumers is not None or self.getters is not None):
            self.turn.touch_queue(self)
        if self.features or message.flags & EXPIRES:
            if message.flags & EXPIRES:
                self.features |= HAS_EXPIRY
            if self.features & HAS_LENGTH_LIMIT:
                self.drop_heads()
            if self.features & HAS_EXPIRY and not self.pending and self.expiry_timer is None:
                self.turn.touch_queue(self)
        if is_held:
            return HELD
        if self.durable:
            if message.flags & PERSISTENT:
                return NEEDS_SYNC
            self.transient += 1
        return STORED

    @property
    def duplicates(self):
        """What remembers message ids (`broker.features.dedup`), or None."""
        return self._duplicates

    @duplicates.setter
    def duplicates(self, found):
        self._duplicates = found
        if found is not None:
            self.features |= DEDUPLICATES
        else:
            self.features &= ~<uint32_t> DEDUPLICATES

    # -- delivering --------------------------------------------------------------------------------

    def hold_back(self, bint on):
        if on:
            self.held_back += 1
            return
        self.held_back -= 1
        if self.held_back == 0 and not self.deleted:
            self.wake()

    cdef bint is_served(self) noexcept:
        return self.held_back == 0 and LimitedQueue.is_served(self)

    cdef int work(self) except -1:
        """Applies the limits and delivers ready messages; a long backlog continues in the next
        turn."""
        cdef QueueStore store = self.store
        cdef bint is_more = False
        self.is_joined = False
        self.note_held(self.now())
        if store is not None and store.lost is not None:
            self.resolve_lost()
        if self.drain_to and not self.drain():
            return 0
        if self.deleted or store is None:
            if self.getters is not None and not self.deleted:
                self.serve_getters()
            return 0
        if self.dying is not None and self.dying.count:
            self.bury()
        if self.features & HAS_LENGTH_LIMIT:
            # What was published has been offered to the consumers. The rest, which was requeued or
            # is above a new limit, has to keep it first.
            self.shed()
        if self.is_served():
            is_more = self.serve_consumers()
        if self.getters is not None and not is_more:
            self.serve_getters()
        if self.features & HAS_EXPIRY and not (self.pending and self.is_served()):
            self.expire()
        return 0

    cdef bint serve_consumers(self) except -1:
        cdef QueueStore store = self.store
        cdef Message message
        cdef Place place
        cdef Consumer consumer
        cdef uint32_t count = 0
        cdef uint64_t size = 0
        cdef uint64_t size_no_ack = 0
        cdef int64_t published_at = 0
        cdef uint32_t alike = 0      # first deliveries in a row that were published at once
        cdef bint is_more = False
        cdef bint is_blocked = False
        cdef int found
        if self.drain_to:
            # What is ready is being purged.
            return False
        while store.ready:
            if count >= TURN_MESSAGES or size >= TURN_BYTES:
                is_more = True
                self.turn.touch_queue(self)
                break
            consumer = self.next_consumer()
            if consumer is None:
                is_blocked = True
                break
            found = store.peek(&message, &place)
            if found != FOUND:
                break
            if self.features & HAS_EXPIRY and self.is_expired(&message):
                if not self.may_drop():
                    break
                store.advance(&place)
                self.drop(&message, &place, DEAD_EXPIRED)
                continue
            if message.flags & BODY_IS_REFERENCE:
                found = store.resolve(&message, &place)
                if found == WAIT:
                    break
                if found != FOUND:
                    if self.holds:
                        self.resolve_message(&message, &place, False)
                    continue
            if self.features & HAS_DELIVERY_LIMIT and place.redelivered:
                self.show_returns(&message, &place)
            if self.features & IS_LEAN:
                self.deliver_lean(consumer, &message, &place)
                count += 1
                size += message.body_length
                size_no_ack += message.body_length * consumer.no_ack
                continue
            consumer.channel.deliver(consumer, &message, &place)
            if self.holds:
                self.note_delivery(&message, &place, consumer.no_ack)
            store.advance(&place)
            count += 1
            size += message.body_length
            if place.redelivered:
                self.redelivered += 1
                self.redelivered_bytes += message.body_length
            elif message.timestamp == published_at:
                alike += 1
            else:
                if alike:
                    self.note_latency(published_at, alike)
                published_at = message.timestamp
                alike = 1
            if consumer.no_ack:
                self.delivered_no_ack += 1
                size_no_ack += message.body_length
                store.settle(&place)
            else:
                self.delivered += 1
        self.bytes_out += size
        self.no_ack_bytes += size_no_ack
        if alike:
            self.note_latency(published_at, alike)
        if is_blocked or self.capacity is not None:
            self.note_capacity(count > 0, is_blocked)
        self.note_turn(count)
        return is_more

    cdef int serve_getters(self) except -1:
        """Answers waiting gets, oldest first, as far as messages can be read now."""
        cdef QueueStore store = self.store
        cdef Message message
        cdef Place place
        cdef int found
        while self.getters and self.held_back == 0:
            if store is None or store.ready == 0:
                getter, _ = self.getters.popitem(False)
                self.got_empty += 1
                getter.empty(self)
                continue
            found = store.peek(&message, &place)
            if found == WAIT:
                return 0
            if found != FOUND:
                getter, _ = self.getters.popitem(False)
                self.got_empty += 1
                getter.empty(self)
                continue
            if self.features & HAS_EXPIRY and self.is_expired(&message):
                if not self.may_drop():
                    break
                store.advance(&place)
                self.drop(&message, &place, DEAD_EXPIRED)
                continue
            if message.flags & BODY_IS_REFERENCE:
                found = store.resolve(&message, &place)
                if found == WAIT:
                    return 0
                if found != FOUND:
                    if self.holds:
                        self.resolve_message(&message, &place, False)
                    continue
            getter, _ = self.getters.popitem(False)
            if place.redelivered:
                self.redelivered += 1
                self.redelivered_bytes += message.body_length
            else:
                self.note_latency(message.timestamp, 1)
            if self.features & HAS_DELIVERY_LIMIT and place.redelivered:
                self.show_returns(&message, &place)
            self.bytes_out += message.body_length
            # Copies: what is settled may be gone from memory. And it is settled before the answer,
            # which waits for what was settled before it.
            told = self.told(&message, &place)
            if self.holds:
                self.note_delivery(&message, &place, getter.no_ack)
            store.advance(&place)
            if getter.no_ack:
                self.got_no_ack += 1
                self.got_no_ack_bytes += place.body_length
                store.settle(&place)
            else:
                self.got += 1
                self.got_bytes += place.body_length
            getter.message(self, *told)
        if not self.getters:
            self.getters = None
        return 0

    cdef int show_returns(self, Message* message, Place* place) except -1:
        """Adds the header that says how often a message came back (RabbitMQ's
        x-delivery-count)."""
        cdef uint32_t returns = self.store.returns_of(place)
        if returns:
            self.shown = with_delivery_count(
                message.properties[:message.properties_length], returns)
            message.properties = <const uint8_t*> <char*> self.shown
            message.properties_length = <uint32_t> len(self.shown)
        return 0

    cdef tuple told(self, Message* message, Place* place):
        """The details of a message in basic.get-ok, except the queue's name; of a large body the
        LargeBody."""
        return (
            message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length],
            body_of(message),
            (place.segment, place.position, place.length, place.redelivered, place.body_length))

    def get(self, getter, *, bint forced=False) -> None:
        """Takes one message for `getter`: `.no_ack`, `.message(queue, exchange, routing_key,
        properties, body, place)` or `.empty(queue)`. A paused queue looks empty unless `forced`.

        The answer comes before the turn ends, or when a reader thread has fetched the message.
        """
        self.used_at = clock.now_ms
        self.note_held(self.now())
        if self.features & PAUSED and not forced:
            self.got_empty += 1
            getter.empty(self)
            return
        if self.getters is None:
            self.getters = OrderedDict()
        self.getters[getter] = None
        self.deliver_pending()
        if self.getters is not None and not self.pending:
            self.serve_getters()

    def withdraw(self, getter) -> None:
        """Takes a get back that is not answered."""
        if self.getters is not None:
            self.getters.pop(getter, None)

    # -- settling ----------------------------------------------------------------------------------

    cdef int settle(self, Place* place, bint acked) except -1:
        if place.segment == 0:
            return self.settle_lean(place, acked)
        if self.deleted:
            return 0
        if clock.now_ms > self.held_at:
            self.note_held(clock.now_ms)
        if acked:
            self.acked += 1
            self.acked_bytes += place.body_length
            if self.holds:
                self.resolve_place(place, True)
            return self.store.settle(place)
        self.rejected += 1
        self.rejected_bytes += place.body_length
        return self.drop(NULL, place, DEAD_REJECTED)

    cdef int requeue(self, Place* place) except -1:
        if place.segment == 0:
            return self.settle_lean(place, False)
        if self.deleted:
            return 0
        if self.features & HAS_DELIVERY_LIMIT and (
                self.store.count_return(place) > self.limits.delivery_limit):
            return self.drop(NULL, place, DEAD_DELIVERY_LIMIT)
        self.store.requeue(place)
        if self.features & HAS_LENGTH_LIMIT:
            self.shed()
        if not self.pending and (self._consumers is not None or self.features):
            self.turn.touch_queue(self)
        return 0

    def settle_place(self, tuple place, bint acked=True) -> None:
        """Settles a message that a basic.get took, by the place that `get` returned."""
        cdef Place at
        at.segment, at.position, at.length, at.redelivered, at.body_length = place
        clock.refresh()
        self.settle(&at, acked)

    def requeue_place(self, tuple place) -> None:
        """Requeues a message that a getter took."""
        cdef Place at
        at.segment, at.position, at.length, at.redelivered, at.body_length = place
        self.requeue(&at)

    def purge_part(self, uint32_t most) -> int:
        """Settles so many of the ready messages that came back, where nobody has to be told.
        Returns how many; 0 means that `purge` takes a moment only."""
        cdef uint64_t octets
        if self.store is None or self.holds or self.deleted:
            return 0
        self.note_held(self.now())
        octets = self.store.ready_bytes
        purged = self.store.purge_part(most)
        self.purged += <uint64_t> purged
        self.purged_bytes += octets - self.store.ready_bytes
        return purged

    def purge(self) -> int:
        """Settles all ready messages; the unacked ones stay. Returns their number."""
        clock.refresh()
        self.note_held(self.now())
        self.deliver_pending()
        if self.store is not None:
            self.purged += self.store.ready
            self.purged_bytes += self.store.ready_bytes
        if self.messages_ready and (self.holds or self.store.lent):
            # Their publishers must get a negative confirm; or among them are places of messages
            # that a transfer has taken.
            count = self.messages_ready
            self.drain_to = self.store.end()
            self.wake()
            self.drain()
            return count
        return self.store.purge() if self.store is not None else 0

    # -- end ---------------------------------------------------------------------------------------

    def delete(self) -> int:
        """Ends the queue and removes its messages from memory and disk. Returns the number of ready
        ones."""
        count = self.messages_ready
        clock.refresh()
        self.note_held(self.now())
        self.held(&self.removed, &self.removed_bytes)
        self.deleted = True
        if self.expiry_timer is not None:
            self.expiry_timer.cancel()
        self._consumers = self.expected = None
        if self.holds and self.messages_ready:
            # Among them may be some that were taken and came back.
            self.drain_to = NO_END
            self.wake()
        else:
            self.refuse_taken()
            self.delete_store()
        if self.getters:
            getters, self.getters = self.getters, None
            for getter in getters:
                getter.empty(self)
        return count
