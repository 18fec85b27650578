# cython: language_level=3
"""The classic queue: messages in order, each delivered to one consumer; a message that comes back
returns to its place.

A publish appends to the store. At the end of the turn, or before a method reads the queue, `work`
delivers the ready messages: to consumers, the highest priority first, those of equal priority in
turn, one message each; then to waiting calls of basic.get. What was delivered is settled, or
requeued.

Its parts own one idea each: `Consumers` who is next, `Limits` what it may hold, with `Expiry` the
time of messages, `DeadLetters` what becomes of messages that leave without an ack, `AckConfirms`
the publishers that wait for acks, the store the messages themselves. A part knows no more of the
queue than a function to call; what joins them is here.
"""

from collections import OrderedDict

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport Consumer, HELD, NEEDS_SYNC, REJECTED, STORED
from broker.kernel.large_body cimport body_of
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, EXPIRES, HAS_ORIGIN, Message, PERSISTENT, Place, RUN_MAX, WAS_DELIVERED,
)
from broker.kernel.recording cimport (
    EVENT_ACKED, EVENT_DELIVERED, EVENT_DELIVERED_NO_ACK, EVENT_GOT, EVENT_GOT_NO_ACK, EVENT_PURGED,
    EVENT_REQUEUED,
)
from broker.kernel.turn cimport Turn
from broker.queues.ack_confirms cimport AckConfirms, put_lean_place, unused_confirms
from broker.queues.consumers cimport Consumers
from broker.queues.counted import with_delivery_count
from broker.queues.counters cimport (
    Backlog, BYTES, CONFIRM, DeliveryCounters, PUBLISH, QueueCounters, READY, UNACKED, USE_REFUSED,
    USE_REFUSED_BYTES,
)
from broker.queues.dead_letters cimport DeadLetters, DeathCounters, PUT_OFF, REASON_COUNT
from broker.queues.declared cimport DeclaredQueue, Levels
from broker.queues.dying cimport (
    DEAD_DELIVERY_LIMIT, DEAD_EXPIRED, DEAD_MAXLEN, DEAD_REJECTED,
)
from broker.queues.dying import reason_name
from broker.queues.limits cimport (
    CONFIRM_ON_ACK, DEDUPLICATES, Expiry, HAS_DEAD_LETTERS, HAS_DELIVERY_LIMIT, HAS_EXPIRY,
    HAS_LENGTH_LIMIT, HAS_PRIORITIES, IS_LEAN, Limits, PAUSED, ttl_of,
)
from broker.queues.refusals cimport Refusals
from broker.settings.bounds import DEFAULTS
from broker.store.commit.persister cimport Persister
from broker.store.log.contracts cimport EMPTY, FOUND, LEVELS, MessageStore, NO_END, WAIT
from broker.store.log.figures cimport Head, in_memory, memory_of, size_of
from broker.store.log.priority_store cimport PriorityStore
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.recovery import recover
from broker.store.log.walk import ends_of
from broker.store.log.segments cimport QueueDirectory

cdef enum:
    TURN_MESSAGES = 4096         # deliveries of one queue in one turn of the loop
    TURN_BYTES = 4 << 20
    TURN_DRAINED = 4096          # messages of a purge in one turn of the loop
    HOPS_MAX = 16                # queues that a message passes without being stored in one

cdef int64_t NEVER = (<int64_t> 1) << 62

# What all queues have that never had a publish, a delivery or a consumer: they stay zero. Each of
# its own, these would take a third of the memory of an empty queue.
cdef QueueCounters UNPUBLISHED = QueueCounters()
cdef DeliveryCounters UNDELIVERED = DeliveryCounters()
cdef Consumers UNCONSUMED = Consumers()

# Of a queue's own memory: the parts that each has, and those that only some have.
cdef uint64_t QUEUE_BYTES = size_of(ClassicQueue) + size_of(Backlog)
cdef uint64_t COUNTS_BYTES = size_of(QueueCounters)
cdef uint64_t CONSUMERS_BYTES = size_of(Consumers)
cdef uint64_t DELIVERIES_BYTES = size_of(DeliveryCounters)
cdef uint64_t CONFIRMS_BYTES = size_of(AckConfirms)
cdef uint64_t LETTERS_BYTES = size_of(DeadLetters) + size_of(DeathCounters)
cdef uint64_t EXPIRY_BYTES = size_of(Expiry)


cdef class ClassicQueue(DeclaredQueue):
    """A queue of type classic, or of type quorum: a durable one with a delivery limit. `parent` is
    the directory of the vhost's queues."""

    def __init__(self, Turn turn, Persister persister, str parent, str vhost_name, str name,
                 uint64_t incarnation, *, bint durable=False, bint exclusive=False,
                 bint auto_delete=False, arguments=None, owner=None, bounds=DEFAULTS):
        DeclaredQueue.__init__(
            self, vhost_name, name, incarnation, durable=durable, exclusive=exclusive,
            auto_delete=auto_delete, arguments=arguments, owner=owner, bounds=bounds)
        self.turn = turn
        self.persister = persister
        self.parent = parent
        self.shares = True
        self.counts = UNPUBLISHED
        self.deliveries = UNDELIVERED
        self.consumers = UNCONSUMED
        self.confirms = unused_confirms(persister.origins)
        self.set_limits(arguments)

    @property
    def type(self):
        return self.arguments.get("x-queue-type", "classic")

    # -- publishing --------------------------------------------------------------------------------

    cdef int publish(self, Message* message, bint confirm) except -1:
        cdef MessageStore store = self.store
        cdef bint is_held = False
        cdef int answer
        cdef bytes identity = None
        if store is None:
            store = self.open_store()
        if self.observer is not None:
            self.observer.took(self, NULL)
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
            elif self.expires_unstored(message, confirm):
                answer = self.expire_at_once(message)
                if answer != PUT_OFF:
                    return answer
            elif self.features & IS_LEAN and store.ready == 0 and self.is_served():
                answer = self.deliver_unstored(message, confirm)
                if answer >= 0:
                    return answer
            if self.features & CONFIRM_ON_ACK and confirm:
                is_held = True
                self.own_confirms()
                self.confirms.begin(message)
        if clock.now_ms > self.backlog.noted_at:
            self.note_held(clock.now_ms)
        store.append(message)
        if self.observer is not None:
            self.observer.took(self, message)
        if is_held:
            message.flags &= ~HAS_ORIGIN
        self.counts.published += 1
        self.counts.bytes_in += message.body_length
        if confirm:
            self.counts.confirmed += 1
        if not self.pending and (self.consumers.all is not None or self.getters is not None):
            self.turn.touch_queue(self)
        if self.features or message.flags & EXPIRES:
            if message.flags & EXPIRES:
                self.features |= HAS_EXPIRY
            if self.features & HAS_LENGTH_LIMIT:
                self.drop_heads()
            if self.features & HAS_EXPIRY and not self.pending and self.expires_next(message):
                self.turn.touch_queue(self)
        if is_held:
            return HELD
        if self.durable:
            if message.flags & PERSISTENT:
                return NEEDS_SYNC
            self.backlog.transient += 1
        return STORED

    cdef bint takes_runs(self) noexcept:
        return (self.features == 0 and self.observer is None and not self.confirms.holds
                and not self.deleted)

    cdef int publish_run(self, Message* messages, uint32_t count, bint confirm) except -1:
        cdef MessageStore store = self.store
        cdef uint64_t before
        if store is None:
            store = self.open_store()
        if clock.now_ms > self.backlog.noted_at:
            self.note_held(clock.now_ms)
        before = store.total_bytes
        store.append_run(messages, count)
        self.counts.published += count
        self.counts.bytes_in += store.total_bytes - before
        if confirm:
            self.counts.confirmed += count
        if not self.pending and (self.consumers.all is not None or self.getters is not None):
            self.turn.touch_queue(self)
        if self.durable:
            if messages[0].flags & PERSISTENT:
                return NEEDS_SYNC
            self.backlog.transient += count
        return STORED

    cdef bint is_full(self, Message* message) noexcept:
        """Whether ready messages, with one to come (or NULL), are over the limit."""
        cdef int64_t count = self.store.ready
        cdef int64_t size = self.store.ready_bytes
        if message != NULL:
            count += 1
            size += message.body_length
        return self.limits.are_exceeded(count, size)

    cdef int make_room(self, Message* message) except -1:
        """Before a message is taken: REJECTED if the queue is full and refuses. What consumers can
        take now leaves first, so that a burst in one chunk is judged as if it came one by one."""
        if not self.limits.rejects or not self.is_full(message):
            return STORED
        if self.is_served():
            self.serve_consumers()
            if not self.is_full(message):
                return STORED
        if self.refusals is None:
            self.refusals = Refusals()
        self.refusals.add(message.body_length)
        if (self.limits.dead_letters_rejected and self.features & HAS_DEAD_LETTERS
                and self.may_pass_on()):
            # It need not be stored first: its publisher gets a negative confirm.
            self.letters().bury_unstored(self, self.store, message, DEAD_MAXLEN)
        return REJECTED

    cdef int drop_heads(self) except -1:
        """After a message is taken: ready ones are dropped until the limit holds."""
        if self.limits.rejects or not self.is_full(NULL):
            return 0
        if self.is_served():
            self.serve_consumers()
        return self.shed()

    cdef int shed(self) except -1:
        """Drops from the head until the limit holds. More than the turn allows go in the next
        ones; two can always go, so that a full queue gets no longer."""
        cdef Message message
        cdef Place place
        cdef int64_t most = self.turn.drops_left if self.turn.drops_left > 2 else 2
        if self.limits.rejects:
            return 0
        while self.store.ready and self.is_full(NULL) and not self.is_choked():
            if most == 0:
                self.turn.touch_queue(self)
                break
            # A head that has to be read from disk is dropped when it is there (`work`).
            if self.store.peek_least(&message, &place) != FOUND:
                break
            most -= 1
            self.turn.drops_left -= 1
            self.store.advance(&place)
            self.drop(&message, &place, DEAD_MAXLEN)
        return 0

    cdef bint may_pass_on(self) noexcept:
        """Whether a new message may pass to the next queue without being stored here. The number of
        queues that it may pass so is limited, because each calls the next."""
        return self.turn.hops < HOPS_MAX

    cdef bint expires_unstored(self, Message* message, bint confirm) noexcept:
        """Whether the message's TTL is over before a consumer could take it. One whose confirm
        waits for what becomes of its dead letter is stored all the same: its place stands for it
        meanwhile."""
        if (self.is_served() or ttl_of(message, self.message_ttl()) != 0
                or not self.may_pass_on()):
            return False
        return not (confirm and self.features & CONFIRM_ON_ACK
                    and self.features & HAS_DEAD_LETTERS)

    cdef int expire_at_once(self, Message* message) except -1:
        """A message whose TTL is over before a consumer could take it is never stored, unless its
        dead letter goes to very many queues: PUT_OFF."""
        cdef int result = STORED
        if self.features & HAS_DEAD_LETTERS:
            result = self.letters().bury_unstored(self, self.store, message, DEAD_EXPIRED)
            if result == PUT_OFF:
                return PUT_OFF
        else:
            self.letters().give_up(DEAD_EXPIRED, message.body_length)
            if self.features & CONFIRM_ON_ACK:
                result = REJECTED
        self.counts.published += 1
        self.counts.bytes_in += message.body_length
        self.counts.expired += 1
        self.counts.expired_bytes += message.body_length
        return result

    cdef int deliver_unstored(self, Message* message, bint confirm) except -2:
        """Lean mode (x-confirm-on: ack-lean) with no ready message: delivers directly to a
        consumer and stores nothing. Returns what publish returns, or -1 if no consumer can take
        it."""
        cdef Consumer consumer = self.consumers.next()
        cdef Place place
        if consumer is None:
            return -1
        put_lean_place(&message.origin, confirm, &place)
        place.redelivered = (message.flags & WAS_DELIVERED) != 0
        consumer.channel.deliver(consumer, message, &place)
        self.counts.published += 1
        self.counts.confirmed += confirm
        self.counts.bytes_in += message.body_length
        self.deliveries.bytes_out += message.body_length
        self.note_latency(message.timestamp, 1)
        if consumer.no_ack:
            self.deliveries.delivered_no_ack += 1
            self.deliveries.no_ack_bytes += message.body_length
            return STORED
        if clock.now_ms > self.backlog.noted_at:
            self.note_held(self.now())
        self.deliveries.delivered += 1
        self.own_confirms()
        self.confirms.lean_unacked += 1
        return HELD if confirm else STORED

    def note_refused(self, connection):
        if self.refusals is not None:
            self.refusals.name_publisher(connection)

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

    cdef int work(self) except -1:
        """Applies the limits and delivers ready messages; a long backlog continues in the next
        turn."""
        cdef MessageStore store = self.store
        cdef bint is_more = False
        self.consumers.is_joined = False
        self.note_held(self.now())
        if store is not None and store.lost is not None:
            self.confirms.resolve_lost(store)
        if self.drain_to and not self.drain():
            return 0
        if self.deleted or store is None:
            if self.getters is not None and not self.deleted:
                self.serve_getters()
            return 0
        if self.dead_letters is not None and self.dead_letters.are_waiting():
            self.dead_letters.bury(self, store)
        if self.features & HAS_LENGTH_LIMIT:
            # Published messages were offered to consumers before any was dropped (`drop_heads`).
            # What was requeued, or exceeds a new limit, is dropped before anything is delivered.
            self.shed()
        if self.is_served():
            is_more = self.serve_consumers()
        if self.getters is not None and not is_more:
            self.serve_getters()
        if self.features & HAS_EXPIRY and not (self.pending and self.is_served()):
            self.expire()
        return 0

    cdef bint is_served(self) noexcept:
        """Whether a message could go to a consumer at all."""
        return (self.consumers.all is not None and self.held_back == 0
                and not self.features & PAUSED)

    cdef bint serve_consumers(self) except -1:
        """Delivers what consumers can take. Whether there is more than one turn may deliver."""
        cdef MessageStore store = self.store
        cdef Consumers consumers = self.consumers
        cdef DeliveryCounters deliveries = self.deliveries
        cdef AckConfirms confirms = self.confirms
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
        cdef bint in_runs = self.takes_runs() and len(consumers.all) == 1
        cdef int found
        if self.drain_to:
            # What is ready is being purged.
            return False
        while store.ready:
            if count >= TURN_MESSAGES or size >= TURN_BYTES:
                is_more = True
                self.turn.touch_queue(self)
                break
            consumer = consumers.next()
            if consumer is None:
                is_blocked = True
                break
            if in_runs and self.deliver_run(consumer, &count, &size):
                continue
            found = store.peek(&message, &place)
            if found != FOUND:
                break
            if self.features & HAS_EXPIRY or message.flags & BODY_IS_REFERENCE:
                found = self.examine(store, &message, &place)
                if found == WAIT:
                    break
                if found != FOUND:
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
            if confirms.holds or self.observer is not None:
                self.note_taken(&message, &place, consumer, EVENT_DELIVERED + consumer.no_ack)
            store.advance(&place)
            count += 1
            size += message.body_length
            if place.redelivered:
                deliveries.redelivered += 1
                deliveries.redelivered_bytes += message.body_length
            elif message.timestamp == published_at:
                alike += 1
            else:
                if alike:
                    self.note_latency(published_at, alike)
                published_at = message.timestamp
                alike = 1
            if consumer.no_ack:
                deliveries.delivered_no_ack += 1
                size_no_ack += message.body_length
                store.settle(&place)
            else:
                deliveries.delivered += 1
        deliveries.bytes_out += size
        deliveries.no_ack_bytes += size_no_ack
        if alike:
            self.note_latency(published_at, alike)
        if is_blocked or consumers.capacity is not None:
            consumers.note_capacity(count > 0, is_blocked)
        self.note_turn(count)
        return is_more

    cdef bint deliver_run(self, Consumer consumer, uint32_t* count, uint64_t* size) except -1:
        """Delivers the next messages together, as far as nothing has to be looked at. Adds how many
        those were, and the bytes of their bodies; False if there were none."""
        cdef MessageStore store = self.store
        cdef DeliveryCounters deliveries = self.deliveries
        cdef Message[RUN_MAX] messages
        cdef Place[RUN_MAX] places
        cdef uint32_t most = min(TURN_MESSAGES - count[0], <uint32_t> RUN_MAX)
        cdef uint32_t taken = store.peek_run(messages, places, most)
        cdef uint32_t since = 0
        cdef uint64_t octets = 0
        cdef uint32_t i
        if taken:
            taken = consumer.channel.deliver_run(consumer, messages, places, taken)
        if taken == 0:
            return False
        for i in range(taken):
            octets += places[i].body_length
        if self.is_timed:
            for i in range(1, taken + 1):
                if i == taken or messages[i].timestamp != messages[since].timestamp:
                    self.note_latency(messages[since].timestamp, i - since)
                    since = i
        store.advance_run(places, taken, octets)
        count[0] += taken
        size[0] += octets
        if consumer.no_ack:
            deliveries.delivered_no_ack += taken
            deliveries.no_ack_bytes += octets
            store.settle_run(places, taken)
        else:
            deliveries.delivered += taken
        return True

    cdef int examine(self, MessageStore store, Message* message, Place* place) except -1:
        """The message at the head: FOUND if it can be delivered; WAIT if it has to be read first,
        or if its time is over and no more can be dropped in this turn; EMPTY or what the store says
        of its body if it has left the queue."""
        cdef int found = FOUND
        if self.features & HAS_EXPIRY and self.is_expired(message):
            if not self.may_drop():
                return WAIT
            store.advance(place)
            self.drop(message, place, DEAD_EXPIRED)
            return EMPTY
        if message.flags & BODY_IS_REFERENCE:
            found = store.resolve(message, place)
            if found != FOUND and found != WAIT and self.confirms.holds:
                self.confirms.resolve_message(message, place, False)
        return found

    cdef int note_turn(self, uint32_t count) except -1:
        """At the end of the queue's time in the turn: how many messages it delivered."""
        self.turn.delivered += count
        if count and self.store.ready and self.consumers.all is not None:
            self.turn.reading.delivered(count, self.consumers.room())
        return 0

    cdef int deliver_lean(self, Consumer consumer, Message* message, Place* place) except -1:
        """Lean mode: a message that had to wait leaves the store with its delivery."""
        cdef Place lean
        put_lean_place(&message.origin, self.confirms.is_awaited(message), &lean)
        lean.redelivered = place.redelivered
        consumer.channel.deliver(consumer, message, &lean)
        if self.observer is not None:
            self.observer.saw(EVENT_DELIVERED + consumer.no_ack, place, consumer)
        if place.redelivered:
            self.deliveries.redelivered += 1
            self.deliveries.redelivered_bytes += message.body_length
        else:
            self.note_latency(message.timestamp, 1)
        if consumer.no_ack:
            self.deliveries.delivered_no_ack += 1
            self.confirms.resolve_message(message, place, True)
        else:
            self.deliveries.delivered += 1
            self.own_confirms()
            self.confirms.lean_unacked += 1
            # If it was delivered before, in mode `ack`, its origin is still noted.
            self.confirms.forget(place)
        self.store.advance(place)
        return self.store.settle(place)

    cdef int note_taken(self, Message* message, Place* place, who, int event) except -1:
        """Tells `observer` and `confirms` of a delivery. `event`: EVENT_DELIVERED or EVENT_GOT, or
        the next number after it for one without acknowledgements."""
        cdef bint no_ack = event == EVENT_DELIVERED_NO_ACK or event == EVENT_GOT_NO_ACK
        if self.observer is not None:
            self.observer.saw(event, place, who)
        if self.confirms.holds:
            self.confirms.note_delivery(message, place, no_ack)
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

    cdef int count_deliveries(self) except -1:
        """Gives the queue `deliveries` of its own, before the first message may be delivered."""
        if self.deliveries is UNDELIVERED:
            self.deliveries = DeliveryCounters()
        return 0

    cdef int own_consumers(self) except -1:
        """Gives the queue `consumers` of its own, before the first is accepted."""
        if self.consumers is UNCONSUMED:
            self.consumers = Consumers()
            self.consumers.single_active = self.limits is not None and self.limits.single_active
        return 0

    cdef int own_confirms(self) except -1:
        """Gives the queue `confirms` of its own, before the first delivery in lean mode, the first
        publisher that waits for an ack, or the first message that dies."""
        if self.confirms.is_unused:
            self.confirms = AckConfirms(self.persister.origins)
        return 0

    # -- basic.get ---------------------------------------------------------------------------------

    def get(self, getter, *, bint forced=False) -> None:
        """Takes one message for `getter`: `.no_ack`, `.message(queue, exchange, routing_key,
        properties, body, place)` or `.empty(queue)`. A paused queue looks empty unless `forced`.

        The answer comes before the turn ends, or when a reader thread has fetched the message.
        """
        self.used_at = clock.now_ms
        self.note_held(self.now())
        self.count_deliveries()
        if self.features & PAUSED and not forced:
            self.deliveries.got_empty += 1
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

    cdef int serve_getters(self) except -1:
        """Answers waiting gets, oldest first, as far as messages can be read now."""
        cdef MessageStore store = self.store
        cdef Message message
        cdef Place place
        cdef int found
        while self.getters and self.held_back == 0:
            if store is None or store.ready == 0:
                getter, _ = self.getters.popitem(False)
                self.deliveries.got_empty += 1
                getter.empty(self)
                continue
            found = store.peek(&message, &place)
            if found == WAIT:
                return 0
            if found != FOUND:
                getter, _ = self.getters.popitem(False)
                self.deliveries.got_empty += 1
                getter.empty(self)
                continue
            if self.features & HAS_EXPIRY or message.flags & BODY_IS_REFERENCE:
                found = self.examine(store, &message, &place)
                if found == WAIT:
                    return 0
                if found != FOUND:
                    continue
            getter, _ = self.getters.popitem(False)
            if place.redelivered:
                self.deliveries.redelivered += 1
                self.deliveries.redelivered_bytes += message.body_length
            else:
                self.note_latency(message.timestamp, 1)
            if self.features & HAS_DELIVERY_LIMIT and place.redelivered:
                self.show_returns(&message, &place)
            self.deliveries.bytes_out += message.body_length
            # `told` copies the message, whose memory `settle` may free. `settle` comes first: a
            # get without acknowledgement is answered when its settlement is written.
            told = self.told(&message, &place)
            if self.confirms.holds or self.observer is not None:
                self.note_taken(&message, &place, getter, EVENT_GOT + <bint> getter.no_ack)
            store.advance(&place)
            if getter.no_ack:
                self.deliveries.got_no_ack += 1
                self.deliveries.got_no_ack_bytes += place.body_length
                store.settle(&place)
            else:
                self.deliveries.got += 1
                self.deliveries.got_bytes += place.body_length
            getter.message(self, *told)
        if not self.getters:
            self.getters = None
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

    # -- settling ----------------------------------------------------------------------------------

    cdef int settle(self, Place* place, bint acked) except -1:
        if place.segment == 0:
            return self.settle_lean(place, acked)
        if self.deleted:
            return 0
        if clock.now_ms > self.backlog.noted_at:
            self.note_held(clock.now_ms)
        if acked:
            self.deliveries.acked += 1
            self.deliveries.acked_bytes += place.body_length
            if self.observer is not None:
                self.observer.saw(EVENT_ACKED, place, None)
            if self.confirms.holds:
                self.confirms.resolve_place(place, True)
            return self.store.settle(place)
        self.deliveries.rejected += 1
        self.deliveries.rejected_bytes += place.body_length
        return self.drop(NULL, place, DEAD_REJECTED)

    cdef int ack_run(self, Place* places, uint32_t count) except -1:
        cdef uint32_t i
        if clock.now_ms > self.backlog.noted_at:
            self.note_held(clock.now_ms)
        self.store.settle_run(places, count)
        self.deliveries.acked += count
        for i in range(count):
            self.deliveries.acked_bytes += places[i].body_length
        return 0

    cdef int requeue(self, Place* place) except -1:
        if place.segment == 0:
            return self.settle_lean(place, False)
        if self.deleted:
            return 0
        if self.features & HAS_DELIVERY_LIMIT and (
                self.store.count_return(place) > self.limits.delivery_limit):
            return self.drop(NULL, place, DEAD_DELIVERY_LIMIT)
        if self.observer is not None:
            self.observer.saw(EVENT_REQUEUED, place, None)
        self.store.requeue(place)
        if self.features & HAS_LENGTH_LIMIT:
            self.shed()
        if not self.pending and (self.consumers.all is not None or self.features):
            self.turn.touch_queue(self)
        return 0

    cdef int settle_lean(self, Place* place, bint acked) except -1:
        """A delivery of lean mode ends; the size of its body was not kept."""
        if clock.now_ms > self.backlog.noted_at:
            self.note_held(self.now())
        if acked:
            self.deliveries.acked += 1
        else:
            self.deliveries.rejected += 1
        return self.confirms.settle_lean(place, acked)

    def settle_place(self, tuple place, bint acked=True) -> None:
        """Settles a message that a basic.get took, by the place that its getter was given."""
        cdef Place at
        at.segment, at.position, at.length, at.redelivered, at.body_length = place
        clock.refresh()
        self.settle(&at, acked)

    def requeue_place(self, tuple place) -> None:
        """Requeues a message that a getter took."""
        cdef Place at
        at.segment, at.position, at.length, at.redelivered, at.body_length = place
        self.requeue(&at)

    # -- leaving without an ack --------------------------------------------------------------------

    cdef int drop(self, Message* message, Place* place, int reason) except -1:
        """A message that was taken leaves without an ack. Where there is a dead-letter exchange it
        stays unacknowledged until it is safe behind that (`DeadLetters.bury`). `message` is NULL
        for one that was delivered."""
        if self.observer is not None:
            self.observer.saw(reason, place, None)
        if reason == DEAD_EXPIRED:
            self.counts.expired += 1
            self.counts.expired_bytes += place.body_length
        elif reason == DEAD_MAXLEN:
            self.counts.dropped += 1
            self.counts.dropped_bytes += place.body_length
        if not self.features & HAS_DEAD_LETTERS:
            self.letters().give_up(reason, place.body_length)
            if not self.confirms.holds:
                return self.store.settle(place)
        if message != NULL and self.confirms.holds:
            self.confirms.note_origin(message, place)
        self.letters().add(place, reason)
        if not self.pending:
            self.turn.touch_queue(self)
        return 0

    cdef DeadLetters letters(self):
        """Made when the first message dies."""
        if self.dead_letters is None:
            self.own_confirms()
            self.dead_letters = DeadLetters(self.confirms, self.persister, self.bounds)
        return self.dead_letters

    cdef bint is_choked(self) noexcept:
        """Whether no further message dies until dead letters have been moved."""
        return self.dead_letters is not None and self.dead_letters.are_choked()

    cdef bint may_drop(self) except -1:
        """Whether one more message may be moved in this turn; if not, the queue continues in the
        next turn, or when dead letters have been moved."""
        if self.is_choked():
            return False
        if self.turn.drops_left <= 0:
            self.turn.touch_queue(self)
            return False
        self.turn.drops_left -= 1
        return True

    cdef int64_t message_ttl(self) noexcept:
        return self.limits.message_ttl if self.limits is not None else -1

    cdef bint is_expired(self, Message* message) noexcept:
        """Whether a message's time is over; with a TTL of 0 not yet for consumers of its turn."""
        cdef int64_t ttl = ttl_of(message, self.message_ttl())
        # Both times are rounded down to milliseconds: only the next one is after the deadline
        # for sure.
        return ttl >= 0 and message.timestamp + ttl < clock.now_ms

    cdef bint expires_next(self, Message* message) noexcept:
        """Whether a message that was just stored may expire before the timer looks: that may wait
        for one that has left, or for the head of another level."""
        cdef int64_t ttl
        if self.expiry is None or self.expiry.timer is None:
            return True
        if self.store.ready > 1 and not self.features & HAS_PRIORITIES:
            return False
        ttl = ttl_of(message, self.message_ttl())
        return ttl >= 0 and message.timestamp + ttl < self.expiry.at

    cdef int expire(self) except -1:
        """Drops expired messages from the head of each level and sets the timer for the next
        deadline."""
        cdef int level
        cdef int64_t deadline
        cdef int64_t earliest = NEVER
        if self.store is None:
            return 0
        clock.refresh()
        level = self.store.next_level(LEVELS)
        while level >= 0:
            deadline = self.expire_level(level)
            if deadline < earliest:
                earliest = deadline
            level = self.store.next_level(level)
        if earliest != NEVER:
            if self.expiry is None:
                self.expiry = Expiry()
            self.expiry.wait_until(earliest, self.later, self.expiry_due)
        return 0

    cdef int64_t expire_level(self, int level) except -1:
        """Drops expired messages from the head of a level. Returns when the next one expires, ms;
        NEVER if it does not, or if the queue is touched when there is more to do."""
        cdef Message message
        cdef Place place
        cdef int64_t queue_ttl = self.message_ttl()
        cdef int64_t deadline = self.store.deadline_at(level, queue_ttl)
        cdef int64_t ttl
        if deadline >= clock.now_ms:
            return deadline
        while self.store.next_level(level + 1) == level:
            if self.store.peek_at(level, &message, &place) != FOUND:
                return NEVER
            ttl = ttl_of(&message, queue_ttl)
            deadline = message.timestamp + ttl if ttl >= 0 else NEVER
            if deadline >= clock.now_ms:
                self.store.note_deadline(level, queue_ttl, deadline)
                return deadline
            if not self.may_drop():
                return NEVER
            self.store.advance(&place)
            self.drop(&message, &place, DEAD_EXPIRED)
        return NEVER

    def expiry_due(self):
        """The timer of `expire`: the head's deadline is here."""
        self.expiry.timer = None
        self.wake()

    # -- purging -----------------------------------------------------------------------------------

    def purge_part(self, uint32_t most) -> int:
        """Settles up to `most` of the ready messages that came back, if no publisher waits for an
        ack. Returns how many; 0 means that `purge` takes a moment only."""
        cdef uint64_t octets
        if self.store is None or self.confirms.holds or self.deleted:
            return 0
        self.note_held(self.now())
        octets = self.store.ready_bytes
        purged = self.store.purge_part(most)
        self.counts.purged += <uint64_t> purged
        self.counts.purged_bytes += octets - self.store.ready_bytes
        return purged

    def purge(self) -> int:
        """Settles all ready messages; the unacked ones stay. Returns their number."""
        clock.refresh()
        self.note_held(self.now())
        self.deliver_pending()
        if self.observer is not None:
            self.observer.saw(EVENT_PURGED, NULL, None)
        if self.store is not None:
            self.counts.purged += self.store.ready
            self.counts.purged_bytes += self.store.ready_bytes
        if self.messages_ready and (self.confirms.holds or self.store.lent):
            # Each publisher must get a negative confirm; or a transfer has taken messages, which
            # `store.purge` would settle, too. Both need that they are removed one by one.
            count = self.messages_ready
            # In segments of their own, what comes from now on gets no position before the mark: a
            # tail of which all is removed gives its positions back.
            ends_of(self.store)
            self.drain_to = self.store.end()
            self.wake()
            self.drain()
            return count
        return self.store.purge() if self.store is not None else 0

    cdef bint drain(self) except -1:
        """Removes the ready messages before the mark of a purge, with a negative confirm for each.
        False while some must be read from disk first or are left for the next turn."""
        cdef MessageStore store = self.store
        cdef Message message
        cdef Place place
        cdef uint32_t count = 0
        cdef int level
        level = store.next_level(LEVELS)
        while level >= 0:
            while store.next_level(level + 1) == level:
                if store.peek_at(level, &message, &place) != FOUND:
                    return False
                if store.is_behind(&place, self.drain_to):
                    break
                if count == TURN_DRAINED:
                    self.turn.touch_queue(self)
                    return False
                count += 1
                self.confirms.resolve_message(&message, &place, False)
                store.advance(&place)
                store.settle(&place)
            level = store.next_level(level)
        self.drain_to = 0
        if self.deleted:
            self.confirms.refuse_taken()
            store.delete()
        return True

    # -- consumers ---------------------------------------------------------------------------------

    def expect_consumer(self, Consumer consumer) -> None:
        """A consumer is accepted: it counts from now on, and gets messages once it is added."""
        self.own_consumers()
        self.consumers.expect(consumer)

    def add_consumer(self, Consumer consumer) -> None:
        """Adds a consumer behind those of its priority. `broker.wire.commands.consuming` has
        checked `exclusive_consumer_tag`."""
        # Ready messages go to the earlier consumers first. Consumers that are added before the
        # next `work`, and find the same number of ready messages, share these.
        if self.pending and not (self.consumers.is_joined
                                 and self.messages_ready == self.consumers.ready_joined):
            self.deliver_pending()
        self.own_consumers()
        self.count_deliveries()
        self.consumers.add(consumer, self.messages_ready)
        if self.store is not None:
            self.store.keep = True
        self.wake()

    def remove_consumer(self, Consumer consumer) -> None:
        """Takes a consumer away; the last one of an auto-delete queue takes the queue with it."""
        consumer.stop()
        if not self.consumers.remove(consumer):
            return
        if self.consumers.all is not None:
            # The next one may be the active one now.
            self.wake()
            return
        self.used_at = clock.now_ms
        if self.store is not None:
            self.store.keep = False
        if (self.consumers.expected is None and self.auto_delete and not self.deleted
                and self.unused is not None):
            self.unused(self)

    def hold_back(self, bint on):
        if on:
            self.held_back += 1
            return
        self.held_back -= 1
        if self.held_back == 0 and not self.deleted:
            self.wake()

    @property
    def paused(self):
        return bool(self.features & PAUSED)

    def pause(self) -> None:
        """Stops all deliveries, to consumers and to basic.get; publishes are still accepted."""
        self.deliver_pending()
        self.features |= PAUSED

    def resume(self) -> None:
        """Resumes deliveries."""
        self.features &= ~PAUSED
        self.touch()

    cdef int touch(self) except -1:
        if not self.pending and self.store is not None and self.store.ready:
            self.turn.touch_queue(self)
        return 0

    cpdef int deliver_pending(self) except -1:
        return self.turn.deliver_first(self)

    def wake(self):
        """Something that delivery waited for is there."""
        if not self.pending:
            self.turn.touch_queue(self)

    # -- the store ---------------------------------------------------------------------------------

    def open_store(self):
        cdef QueueDirectory folder = QueueDirectory(
            self.persister, self.parent, self.incarnation)
        if self.limits is not None and self.limits.max_priority > 0:
            self.store = PriorityStore(
                folder, self.durable, self.wake, <uint32_t> self.limits.max_priority, self.bodies)
        else:
            self.store = QueueStore(folder, self.durable, self.wake, self.bodies)
        self.had_store = True
        # Whatever comes and leaves without a consumer passes a store.
        if self.counts is UNPUBLISHED:
            self.counts = QueueCounters()
        # A number is never used twice, not even when the store was given back meanwhile.
        self.store.go_on_from(self.next_segment)
        # Written records stay in memory for consumers that are about to read them.
        self.store.keep = self.consumers.all is not None
        return self.store

    def recover(self) -> list:
        """Finds the messages of the last run again. Returns what was wrong."""
        problems = recover(self.open_store())
        clock.refresh()
        self.backlog.noted_at = clock.now_ms
        self.backlog.recovered = True
        if self.store.any_expires:
            self.features |= HAS_EXPIRY
        if self.store.total == 0:
            self.next_segment = self.store.unused_number()
            self.store = None
            self.counts = UNPUBLISHED
        return problems

    def delete_store(self) -> None:
        """The queue is deleted, with its messages and its directory. An idle queue without a store
        may still have the directory."""
        if self.store is None and self.had_store:
            self.open_store()
            self.store.folder.made = True
        if self.store is not None:
            self.store.delete()

    def close(self) -> None:
        """Clean stop. A queue that does not survive gives back what it refers to."""
        if self.dead_letters is not None:
            self.dead_letters.end()
        if self.store is not None and not self.deleted:
            if self.durable:
                self.store.close()
            else:
                self.store.delete()

    def rest_if_idle(self, double now, double after) -> None:
        """Called from time to time: a queue without traffic for `after` seconds frees the memory
        that it does not need."""
        cdef uint64_t moved = self.counts.published + self.deliveries.left()
        if moved != self.moved:
            self.moved = moved
            self.idle_since = now
        elif self.store is not None and not self.deleted and now - self.idle_since >= after:
            self.store.rest()
            if (type(self.store) is QueueStore and self.store.total == 0
                    and not (self.dead_letters is not None and self.dead_letters.are_waiting())
                    and (<QueueStore> self.store).segments.has_no_files()):
                self.next_segment = self.store.unused_number()
                self.store = None

    def delete(self) -> int:
        """Ends the queue and removes its messages from memory and disk. Returns the number of ready
        ones."""
        count = self.messages_ready
        clock.refresh()
        self.note_held(self.now())
        if self.counts is not UNPUBLISHED:
            self.held(&self.counts.removed, &self.counts.removed_bytes)
        self.deleted = True
        if self.expiry is not None:
            self.expiry.stop()
        if self.dead_letters is not None:
            self.dead_letters.end()
        self.consumers.clear()
        if self.confirms.holds and self.messages_ready:
            # A requeued message is among the ready ones and its confirm among those of taken ones:
            # `drain` answers first.
            self.drain_to = NO_END
            self.wake()
        else:
            self.confirms.refuse_taken()
            self.delete_store()
        if self.getters:
            getters, self.getters = self.getters, None
            for getter in getters:
                getter.empty(self)
        return count

    # -- policies ----------------------------------------------------------------------------------

    def reconfigure(self, effective) -> None:
        """Takes other limits: the x-arguments that hold now by declaration and policies, which are
        checked. Messages that are there go by them too, from this turn on, but for those that
        consumers take at once."""
        cdef uint32_t before = self.limits.features() if self.limits is not None else 0
        self.deliver_pending()
        self.set_limits(effective)
        if self.expiry is not None:
            self.expiry.stop()
        for consumer in self.consumers:
            consumer.channel.watch_acks_of(consumer)
        if self.store is None:
            return
        if before & HAS_EXPIRY and self.store.total:
            # Among the messages may be some with a TTL of their own.
            self.features |= HAS_EXPIRY
        if self.store.ready and self.features:
            self.wake()

    cdef int set_limits(self, effective) except -1:
        """What the x-arguments limit that hold now."""
        if self.limits is not None:
            self.features &= ~self.limits.features()
        self.limits = Limits(effective) if effective else None
        if self.limits is not None:
            self.features |= self.limits.features()
        if self.consumers is not UNCONSUMED:
            self.consumers.single_active = self.limits is not None and self.limits.single_active
        return 0

    # -- what others see ---------------------------------------------------------------------------

    @property
    def state(self):
        return "paused" if self.features & PAUSED else "running"

    @property
    def consumer_count(self):
        return self.consumers.count()

    @property
    def exclusive_consumer_tag(self):
        return self.consumers.exclusive_tag()

    @property
    def single_active_consumer(self):
        """The one consumer that is served; None if all are, or if there is none."""
        return self.consumers.active()

    @property
    def single_active_consumer_tag(self):
        active = self.consumers.active()
        return active.tag if active is not None else None

    @property
    def consumer_capacity(self):
        """The share of the time, lately, that a consumer could take a message at once, from 0 to 1;
        0 without consumers or while paused."""
        if not self.is_served():
            return 0
        return self.consumers.capacity_share(not self.messages_ready)

    @property
    def could_take(self):
        """Whether a consumer could take a message now: one of priority 0 or higher, as those of
        other brokers' federation links have a lower one."""
        return self.is_served() and self.consumers.could_take()

    @property
    def oldest_unconfirmed(self):
        """When the oldest message was published (ms) that a publisher waits for; None if there is
        none, or if it is not known (`AckConfirms.oldest`)."""
        return self.confirms.oldest(self.store)

    @property
    def refused(self):
        """How many publishes were refused because the queue was full."""
        return self.refusals.total if self.refusals is not None else 0

    def leaving(self) -> dict:
        """How many messages left without an ack, or never came in."""
        return {
            "expired": self.counts.expired,
            "dropped": self.counts.dropped,
            "dead_lettered": (
                self.dead_letters.lettered if self.dead_letters is not None else 0),
            "refused": self.refused,
        }

    def deaths(self) -> dict:
        cdef DeathCounters deaths = None
        if self.dead_letters is not None:
            deaths = self.dead_letters.deaths
        if deaths is None:
            return {reason_name(reason): (0, 0) for reason in range(REASON_COUNT)}
        return {reason_name(reason): (deaths.given_up[reason], deaths.lettered[reason])
                for reason in range(REASON_COUNT)}

    @property
    def messages_ready(self):
        return self.store.ready if self.store is not None else 0

    @property
    def messages_unacknowledged(self):
        if self.store is None:
            return self.confirms.lean_unacked
        return self.store.total - self.store.ready + self.confirms.lean_unacked

    @property
    def message_bytes_ready(self):
        return self.store.ready_bytes if self.store is not None else 0

    @property
    def message_bytes_unacknowledged(self):
        return self.store.total_bytes - self.store.ready_bytes if self.store is not None else 0

    @property
    def messages(self):
        """Ready and unacknowledged."""
        return (self.store.total if self.store is not None else 0) + self.confirms.lean_unacked

    @property
    def message_bytes(self):
        return self.store.total_bytes if self.store is not None else 0

    cdef int persistent_share(self) noexcept:
        """Whether all stored messages are persistent, 1, or none of them, 0; -1 if it is not
        known."""
        return self.backlog.persistence(
            self.store.total if self.store is not None else 0, self.durable, self.counts.published)

    @property
    def messages_persistent(self):
        """None where persistent and transient messages are mixed: their numbers are not known."""
        cdef int all_are = self.persistent_share()
        return None if all_are < 0 else self.store.total if all_are else 0

    @property
    def message_bytes_persistent(self):
        """The same in bytes of their bodies."""
        cdef int all_are = self.persistent_share()
        return None if all_are < 0 else self.store.total_bytes if all_are else 0

    cdef object among_resident(self, uint64_t figure):
        """The part of a figure that is in memory, if all records or no record are in memory;
        otherwise None."""
        resident = in_memory(self.store)
        if resident == 0:
            return 0
        return figure if resident == self.store.total + self.confirms.lean_unacked else None

    @property
    def messages_ram(self):
        """Messages whose records are in memory; None if it is not known."""
        return in_memory(self.store) if self.store is not None else 0

    @property
    def messages_ready_ram(self):
        """The ready ones of them."""
        return self.among_resident(self.store.ready) if self.store is not None else 0

    @property
    def messages_unacknowledged_ram(self):
        """The unacknowledged ones of them."""
        if self.store is None:
            return 0
        return self.among_resident(self.store.total - self.store.ready + self.confirms.lean_unacked)

    @property
    def message_bytes_ram(self):
        """The bytes of their bodies."""
        return self.among_resident(self.store.total_bytes) if self.store is not None else 0

    @property
    def messages_paged_out(self):
        """Messages whose records are on disk only; None if it is not known."""
        resident = in_memory(self.store) if self.store is not None else 0
        return None if resident is None else self.messages - resident

    @property
    def message_bytes_paged_out(self):
        """The bytes of their bodies."""
        resident = self.message_bytes_ram
        return None if resident is None else self.message_bytes - resident

    @property
    def memory(self):
        """Bytes of memory of the queue with what it holds of its messages."""
        cdef uint64_t size = QUEUE_BYTES
        if self.counts is not UNPUBLISHED:
            size += COUNTS_BYTES
        if self.deliveries is not UNDELIVERED:
            size += DELIVERIES_BYTES
        if self.consumers is not UNCONSUMED:
            size += CONSUMERS_BYTES
        if not self.confirms.is_unused:
            size += CONFIRMS_BYTES
        if self.dead_letters is not None:
            size += LETTERS_BYTES
        if self.expiry is not None:
            size += EXPIRY_BYTES
        return size + memory_of(self.store) if self.store is not None else size

    @property
    def head_message_timestamp(self):
        """The property of the next message to deliver, seconds since 1970; None if it has none, or
        if it cannot be had without waiting for the disk."""
        if self.store is None:
            return None
        if self.head is None:
            self.head = Head()
        return self.head.timestamp_of(self.store)

    @property
    def segments(self):
        return self.store.segment_count if self.store is not None else 0

    @property
    def disk_bytes(self):
        return self.store.disk_bytes if self.store is not None else 0

    @property
    def disk_bytes_live(self):
        return self.store.disk_bytes_live if self.store is not None else 0

    def counters(self) -> dict:
        """Cumulative counts since the queue was declared or recovered, under RabbitMQ's names."""
        return {
            "publish": self.counts.published,
            "confirm": self.counts.confirmed,
            "deliver": self.deliveries.delivered,
            "deliver_no_ack": self.deliveries.delivered_no_ack,
            "get": self.deliveries.got,
            "get_no_ack": self.deliveries.got_no_ack,
            "get_empty": self.deliveries.got_empty,
            "ack": self.deliveries.acked,
            "redeliver": self.deliveries.redelivered,
            "reject": self.deliveries.rejected,
        }

    cdef void held(self, uint64_t* messages, uint64_t* size) noexcept:
        messages[0], size[0] = self.confirms.lean_unacked, 0
        if self.store is not None:
            messages[0] += self.store.total
            size[0] = self.store.total_bytes

    cdef int64_t oldest(self) except -2:
        if self.store is None or self.store.ready == 0:
            return -1
        if self.head is None:
            self.head = Head()
        return self.head.oldest_of(self.store)

    cdef int levels(self, Levels* found) except -1:
        found.ready = found.bytes = 0
        found.unacked = self.confirms.lean_unacked
        found.consumers = self.consumers.count()
        if self.store is not None:
            found.ready = self.store.ready
            found.unacked += self.store.total - self.store.ready
            found.bytes = self.store.total_bytes
        return 0

    cdef int sample(self, double* row, double* signs) except -1:
        cdef Levels held
        self.deliveries.sample(row)
        row[PUBLISH] = <double> <int64_t> self.counts.published
        row[CONFIRM] = <double> <int64_t> self.counts.confirmed
        self.levels(&held)
        row[READY] = held.ready
        row[UNACKED] = held.unacked
        row[BYTES] = held.bytes
        signs[0] = held.consumers
        signs[1] = self.features
        signs[2] = <double> <size_t> <void*> self.limits
        signs[3] = <double> (self.counts.expired + self.counts.dropped)
        if self.dead_letters is not None:
            signs[3] += self.dead_letters.lettered
        if self.refusals is not None:
            signs[3] += self.refusals.total
        return 0

    cdef int use(self, int64_t now, uint64_t* row) except -1:
        DeclaredQueue.use(self, now, row)
        self.deliveries.use(row)
        if self.dead_letters is not None:
            self.dead_letters.use(row)
        if self.refusals is not None:
            row[USE_REFUSED] = self.refusals.total
            row[USE_REFUSED_BYTES] = self.refusals.bytes
        return 0
