# cython: language_level=3
"""The classic queue: messages in order, each to one consumer, back to its place when it is not
acked.

Publishing appends to the store. At the end of the turn `work` hands out what is ready: first to
waiting gets, then to consumers, the highest priority first, equals in turn, one message each.
"""

import functools

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.contracts cimport Consumer, HELD, NEEDS_SYNC, Queue, REJECTED, STORED
from broker.kernel cimport clock
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, EXPIRES, HAS_ORIGIN, Message, Origin, PERSISTENT, Place,
)
from broker.kernel.turn cimport Turn
from broker.queues.dying cimport (
    DEAD_DELIVERY_LIMIT, DEAD_EXPIRED, DEAD_MAXLEN, DEAD_REJECTED, Death, Dying,
)
from broker.queues.limits cimport (
    CONFIRM_ON_ACK, DEDUPLICATES, HAS_DEAD_LETTERS, HAS_DELIVERY_LIMIT, HAS_EXPIRY,
    HAS_LENGTH_LIMIT, IS_LEAN, Limits, PAUSED, SINGLE_ACTIVE, ttl_of,
)
from broker.store.body_record cimport REFERENCE_BYTES
from broker.store.persister cimport Persister
from broker.store.priority_store cimport PriorityStore
from broker.store.queue_store cimport FOUND, NO_END, QueueStore, WAIT
from broker.store.recorder cimport PLANTED_HAND_OVER_EARLY, planted
from broker.queues.counted import with_delivery_count
from broker.queues.dying import reason_name
from broker.store.recovery import recover

cdef enum:
    TURN_MESSAGES = 4096         # deliveries of one queue in one turn of the loop
    TURN_BYTES = 4 << 20
    TURN_LETTERS = 32            # dead letters that each queue may hand over in a turn
    LETTER_DROPS = 64            # messages that could be dropped in the time of one dead letter
    DYING_MAX = 4096             # dead letters that wait for a full queue before no more may die
    LEVELS = 256

# How long a dead letter waits before it is offered to a full queue again.
cdef double BURY_AGAIN_S = 0.25
cdef int64_t NEVER = (<int64_t> 1) << 62


cdef class ClassicQueue(Queue):
    """A queue of type classic. `parent` is the directory of the vhost's queues."""

    def __init__(self, Turn turn, Persister persister, str parent, str vhost_name, str name,
                 uint64_t incarnation, *, bint durable=False, bint exclusive=False,
                 bint auto_delete=False, arguments=None, owner=None):
        self.turn = turn
        self.persister = persister
        self.parent = parent
        self.vhost_name = vhost_name
        self.name = name
        self.incarnation = incarnation
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self._arguments = arguments or None
        self.owner = owner
        self.used_at = clock.now_ms
        self.shares = True
        if arguments:
            self.limits = Limits(arguments)
            self.features = self.limits.features()

    # -- what others see ---------------------------------------------------------------------------

    @property
    def type(self):
        return self.arguments.get("x-queue-type", "classic")

    @property
    def state(self):
        return "paused" if self.features & PAUSED else "running"

    @property
    def paused(self):
        return bool(self.features & PAUSED)

    @property
    def arguments(self):
        return self._arguments or {}

    @property
    def consumers(self):
        return (self._consumers or []) + (self.expected or [])

    @property
    def consumer_count(self):
        return len(self.consumers)

    @property
    def messages_ready(self):
        return self.store.ready if self.store is not None else 0

    @property
    def messages_unacknowledged(self):
        if self.store is None:
            return self.lean_unacked
        return self.store.total - self.store.ready + self.lean_unacked

    @property
    def message_bytes_ready(self):
        return self.store.ready_bytes if self.store is not None else 0

    @property
    def message_bytes_unacknowledged(self):
        return self.store.total_bytes - self.store.ready_bytes if self.store is not None else 0

    @property
    def message_bytes_persistent(self):
        return self.store.total_bytes if self.store is not None and self.durable else 0

    @property
    def segments(self):
        return self.store.segments if self.store is not None else 0

    @property
    def disk_bytes(self):
        return self.store.disk_bytes if self.store is not None else 0

    @property
    def disk_bytes_live(self):
        return self.store.disk_bytes_live if self.store is not None else 0

    @property
    def exclusive_consumer_tag(self):
        for consumer in self.consumers:
            if consumer.exclusive:
                return consumer.tag
        return None

    def counters(self) -> dict:
        """Cumulative counts since the queue was declared or recovered, under RabbitMQ's names."""
        return {
            "publish": self.published,
            "confirm": self.confirmed,
            "deliver": self.delivered,
            "deliver_no_ack": self.delivered_no_ack,
            "get": self.got,
            "get_no_ack": self.got_no_ack,
            "get_empty": self.got_empty,
            "ack": self.acked,
            "redeliver": self.redelivered,
            "reject": self.rejected,
        }

    # -- publishing --------------------------------------------------------------------------------

    cdef int publish(self, Message* message, bint confirm) except -1:
        cdef QueueStore store = self.store
        cdef bint is_held = False
        cdef int answer
        cdef bytes identity = None
        if store is None:
            store = self.open_store()
        if self.features or message.flags & EXPIRES:
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
                # Its body may have to be read first: it goes by the store.
                pass
            elif not self.is_served() and ttl_of(message, self.message_ttl()) == 0:
                # Its time is over before anybody could take it.
                return self.expire_at_once(message)
            elif self.features & IS_LEAN and store.ready == 0 and self.is_served():
                answer = self.deliver_unstored(message, confirm)
                if answer >= 0:
                    return answer
            if self.features & CONFIRM_ON_ACK and confirm:
                is_held = self.holds = True
                message.origin.boot = self.persister.origins.boot
                message.flags |= HAS_ORIGIN
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
        if self.durable and message.flags & PERSISTENT:
            return NEEDS_SYNC
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

    def open_store(self):
        if self.limits is not None and self.limits.max_priority > 0:
            self.store = PriorityStore(
                self.persister, self.parent, self.incarnation, self.durable, self.wake,
                <uint32_t> self.limits.max_priority, self.bodies)
        else:
            self.store = QueueStore(
                self.persister, self.parent, self.incarnation, self.durable, self.wake,
                self.bodies)
        self.store.keep = self._consumers is not None
        # A number is never used twice, not even when the store was given back meanwhile.
        self.store.go_on_from(self.next_segment)
        return self.store

    # -- limits ------------------------------------------------------------------------------------

    cdef bint is_full(self, Message* message) noexcept:
        """Whether ready messages, with one to come (or NULL), are over the limit."""
        cdef Limits limits = self.limits
        cdef int64_t count = self.store.ready
        cdef int64_t size = self.store.ready_bytes
        if message != NULL:
            count += 1
            size += message.body_length
        return (limits.max_length >= 0 and count > limits.max_length
                or limits.max_length_bytes >= 0 and size > limits.max_length_bytes)

    cdef int make_room(self, Message* message) except -1:
        """Before a message is taken: REJECTED if the queue is full and refuses. What consumers can
        take now leaves first, so that a burst in one chunk is judged as if it came one by one."""
        if not self.limits.rejects or not self.is_full(message):
            return STORED
        if self._consumers is not None:
            self.work()
            if not self.is_full(message):
                return STORED
        self.rejected += 1
        if self.limits.dead_letters_rejected and self.features & HAS_DEAD_LETTERS:
            # Nobody relies on it: its publisher is told that it was refused.
            self.bury_unstored(message, DEAD_MAXLEN)
        return REJECTED

    cdef int drop_heads(self) except -1:
        """After a message is taken: the oldest ready ones go until the limit holds."""
        if self.limits.rejects or not self.is_full(NULL):
            return 0
        if self._consumers is not None:
            self.work()
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
            self.drop(&place, DEAD_MAXLEN)
        return 0

    cdef int expire_at_once(self, Message* message) except -1:
        """A message whose time is over before anybody could take it is never stored."""
        cdef int result = STORED
        self.published += 1
        self.expired += 1
        if self.features & HAS_DEAD_LETTERS:
            result = self.bury_unstored(message, DEAD_EXPIRED)
        elif self.features & CONFIRM_ON_ACK:
            result = REJECTED
        return result

    cdef int64_t message_ttl(self) noexcept:
        return self.limits.message_ttl if self.limits is not None else -1

    cdef bint is_expired(self, Message* message) noexcept:
        """Whether a message's time is over; with a TTL of 0 not yet for consumers of its turn."""
        cdef int64_t ttl = ttl_of(message, self.message_ttl())
        # Milliseconds are cut off on both sides: only the next one is late enough for sure.
        return ttl >= 0 and message.timestamp + ttl < clock.now_ms

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
        if earliest != NEVER and (self.expiry_timer is None or self.expiry_at > earliest):
            if self.expiry_timer is not None:
                self.expiry_timer.cancel()
            self.expiry_at = earliest
            self.expiry_timer = self.later(
                (earliest - clock.now_ms + 1) / 1000, self.expiry_due)
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
            self.drop(&place, DEAD_EXPIRED)
        return NEVER

    def expiry_due(self):
        """The timer of `expire`: the head's deadline is here."""
        self.expiry_timer = None
        self.wake()

    def reconfigure(self, effective) -> None:
        """Takes other limits: the x-arguments that hold now by declaration and policies, which are
        checked. Messages that are there go by them too, from this turn on."""
        cdef uint32_t before = self.limits.features() if self.limits is not None else 0
        self.features &= ~before
        self.limits = Limits(effective) if effective else None
        if self.limits is not None:
            self.features |= self.limits.features()
        if self.expiry_timer is not None:
            self.expiry_timer.cancel()
            self.expiry_timer = None
        for consumer in self.consumers:
            consumer.channel.watch_acks()
        if self.store is None:
            return
        if before & HAS_EXPIRY and self.store.total:
            # Among the messages may be some with a TTL of their own.
            self.features |= HAS_EXPIRY
        if self.store.ready and self.features:
            self.wake()

    # -- dead letters ------------------------------------------------------------------------------

    cdef int drop(self, Place* place, int reason) except -1:
        """A message that was taken leaves without an ack. Where there is a dead-letter exchange it
        stays unacknowledged until it is safe behind that (`bury`)."""
        if reason == DEAD_EXPIRED:
            self.expired += 1
        elif reason == DEAD_MAXLEN:
            self.dropped += 1
        if not self.features & HAS_DEAD_LETTERS and not self.holds:
            return self.store.settle(place)
        if self.dying is None:
            self.dying = Dying()
        self.dying.add(place, reason)
        if not self.pending:
            self.turn.touch_queue(self)
        return 0

    cdef bint is_choked(self) noexcept:
        """Whether dead letters wait for a full queue: nothing more dies until they are gone."""
        return self.dying is not None and self.dying.count >= DYING_MAX

    cdef bint may_drop(self) except -1:
        """Whether one more message may go in this turn; if not, the queue goes on in the next one,
        or when dead letters have left."""
        if self.is_choked():
            return False
        if self.turn.drops_left <= 0:
            self.turn.touch_queue(self)
            return False
        self.turn.drops_left -= 1
        return True

    cdef int bury(self) except -1:
        """Hands dead letters over, the oldest first. Each is settled here once the queues that took
        it have it on disk, so that a crash may double it but never lose it."""
        cdef Dying dying = self.dying
        cdef Dying leaving = None
        cdef Death* death
        cdef Place place
        cdef Message message
        cdef int result, found
        cdef uint32_t count = 0
        while dying.count:
            if count >= TURN_LETTERS and self.turn.drops_left <= 0:
                self.turn.touch_queue(self)
                break
            self.turn.drops_left -= LETTER_DROPS
            death = dying.head()
            place = death.place
            found = self.store.read(&place, &message)
            if found == WAIT:
                break
            result = STORED
            if found == FOUND:
                result = self.bury_message(&message, death.reason)
                if self.holds:
                    self.pass_origin(&message, &place, result)
            if result == REJECTED:
                self.later(BURY_AGAIN_S, self.wake)
                break
            dying.pop()
            count += 1
            if result == NEEDS_SYNC and (self.durable or self.holds) and (
                    planted != PLANTED_HAND_OVER_EARLY):
                if leaving is None:
                    leaving = Dying()
                leaving.add(&place, 0)
            else:
                self.store.settle(&place)
        if leaving is not None:
            self.persister.after_round(functools.partial(self.buried, leaving))
        return 0

    def buried(self, Dying leaving):
        """What `bury` handed over is on disk."""
        while leaving.count:
            if self.holds:
                self.resolve_place(&leaving.head().place, True)
            if not self.deleted:
                self.store.settle(&leaving.head().place)
            leaving.pop()

    cdef int bury_unstored(self, Message* message, int reason) except -1:
        """The same for a message that was never stored. Queues that refuse it do without."""
        cdef list refusing = self.refusing
        cdef int before = self.buried_result
        cdef int result
        self.refusing = None
        self.buried_result = STORED
        result = self.bury_message(message, reason)
        self.refusing = refusing
        self.buried_result = before
        return result

    cdef int bury_message(self, Message* message, int reason) except -1:
        """Publishes one dead letter. STORED or NEEDS_SYNC, or REJECTED while a queue that has to
        take it is full (`refusing`; the others have it then)."""
        cdef Message letter
        cdef bytes exchange, routing_key, properties, reference
        cdef bytes body = None
        cdef Queue target
        cdef int result = self.buried_result
        cdef int held = 0
        cdef int answer
        cdef bint has_origin = message.flags & HAS_ORIGIN and self.is_ours(&message.origin)
        self.held_letters = 0
        found = self.dead_letter(
            self, reason_name(reason), message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length])
        if found is not None and message.flags & BODY_IS_REFERENCE and message.body == NULL:
            for target in found[0]:
                if not target.shares:
                    answer = self.store.find_body(message)
                    if answer == WAIT:
                        return REJECTED
                    if answer != FOUND:
                        found = None
                    break
        self.buried_result = STORED
        if found is None:
            self.refusing = None
            if has_origin:
                self.persister.origins.resolve(
                    message.origin.channel, message.origin.tag, False)
                message.flags &= ~HAS_ORIGIN
            return STORED
        targets, exchange, routing_key, properties = found
        letter.flags = message.flags & PERSISTENT
        letter.body = NULL
        # A target may be this very queue, whose buffers move when it takes a message.
        if message.flags & BODY_IS_REFERENCE:
            reference = message.reference[:REFERENCE_BYTES]
            letter.flags |= BODY_IS_REFERENCE
            letter.reference = <const uint8_t*> <char*> reference
        if message.body != NULL:
            body = message.body[:message.body_length]
            letter.body = <const uint8_t*> <char*> body
        letter.exchange = <const uint8_t*> <char*> exchange
        letter.exchange_length = <uint8_t> len(exchange)
        letter.routing_key = <const uint8_t*> <char*> routing_key
        letter.routing_key_length = <uint8_t> len(routing_key)
        letter.properties = <const uint8_t*> <char*> properties
        letter.properties_length = <uint32_t> len(properties)
        letter.body_length = message.body_length
        letter.timestamp = clock.now_ms
        letter.origin = message.origin
        shared = (not letter.flags & BODY_IS_REFERENCE and self.bodies is not None
                  and len(targets) > 1 and letter.body_length >= self.bodies.embed_below)
        if shared:
            self.bodies.share(&letter)
        refusing = []
        for target in targets:
            if self.refusing is not None and target not in self.refusing:
                continue
            answer = target.receive(&letter, has_origin)
            if answer == REJECTED:
                refusing.append(target)
            else:
                result |= answer & NEEDS_SYNC
                held += answer == HELD
        if shared:
            self.bodies.release(letter.reference)
        self.refusing = refusing or None
        self.held_letters = held
        if refusing:
            self.buried_result = result
            return REJECTED
        self.dead_lettered += 1
        return result

    @property
    def single_active_consumer(self):
        """The one consumer that is served; None if all are, or if there is none."""
        if self._consumers is None or not self.features & SINGLE_ACTIVE:
            return None
        return self._consumers[0]

    @property
    def single_active_consumer_tag(self):
        active = self.single_active_consumer
        return active.tag if active is not None else None

    # -- confirm on ack ----------------------------------------------------------------------------
    # The publisher's confirm waits for consumers (x-confirm-on). A record carries its origin; the
    # queue remembers those of deliveries that want an ack. In lean mode it keeps nothing at all: a
    # delivery's place, in segment 0, is its origin.

    cdef bint is_ours(self, Origin* origin) noexcept:
        """An origin of another start of the broker resolves nothing."""
        return origin.boot == self.persister.origins.boot

    cdef int note_delivery(self, Message* message, Place* place, bint no_ack) except -1:
        """A message with an origin goes out."""
        if not message.flags & HAS_ORIGIN or not self.is_ours(&message.origin):
            return 0
        if no_ack:
            return self.persister.origins.resolve(
                message.origin.channel, message.origin.tag, True)
        self.holds = True
        if self.taken is None:
            self.taken = {}
        self.taken[<uint64_t> place.segment << 32 | place.position] = (
            message.origin.channel, message.origin.tag)
        return 0

    cdef int resolve_place(self, Place* place, bint acked) except -1:
        """What was taken from this place has found its end."""
        if self.taken is not None:
            origin = self.taken.pop(<uint64_t> place.segment << 32 | place.position, None)
            if origin is not None:
                self.persister.origins.resolve(origin[0], origin[1], acked)
        return 0

    cdef int pass_origin(self, Message* message, Place* place, int result) except -1:
        """A dead letter's origin waits for whatever the queues that took it wait for."""
        cdef int parts = self.held_letters
        if not message.flags & HAS_ORIGIN or not self.is_ours(&message.origin):
            return 0
        if result == REJECTED:
            # One part stays for the queues that still refuse it.
            return self.persister.origins.more(message.origin.channel, message.origin.tag, parts)
        if result == NEEDS_SYNC:
            parts += 1
            if self.taken is None:
                self.taken = {}
            self.taken[<uint64_t> place.segment << 32 | place.position] = (
                message.origin.channel, message.origin.tag)
        if parts == 0:
            return self.persister.origins.resolve(
                message.origin.channel, message.origin.tag, True)
        if parts > 1:
            self.persister.origins.more(message.origin.channel, message.origin.tag, parts - 1)
        return 0

    cdef int lean_place(self, Origin* origin, bint is_known, Place* place) noexcept:
        place.segment = 0
        place.position = origin.channel if is_known else 0
        place.length = <uint32_t> origin.tag
        place.body_length = <uint32_t> (origin.tag >> 32)
        return 0

    cdef int deliver_unstored(self, Message* message, bint confirm) except -2:
        """Lean mode, and nothing is ready: straight to a consumer. What publish answers, or -1 if
        no consumer can take it."""
        cdef Consumer consumer = self.next_consumer()
        cdef Place place
        if consumer is None:
            return -1
        self.lean_place(&message.origin, confirm, &place)
        place.redelivered = 0
        consumer.channel.deliver(consumer, message, &place)
        self.published += 1
        self.confirmed += confirm
        self.bytes_in += message.body_length
        self.bytes_out += message.body_length
        if consumer.no_ack:
            self.delivered_no_ack += 1
            return STORED
        self.delivered += 1
        self.lean_unacked += 1
        return HELD if confirm else STORED

    cdef int deliver_lean(self, Consumer consumer, Message* message, Place* place) except -1:
        """Lean mode: a message that had to wait leaves the store with its delivery."""
        cdef Place lean
        cdef bint is_known = message.flags & HAS_ORIGIN and self.is_ours(&message.origin)
        self.lean_place(&message.origin, is_known, &lean)
        lean.redelivered = place.redelivered
        consumer.channel.deliver(consumer, message, &lean)
        if place.redelivered:
            self.redelivered += 1
        if consumer.no_ack:
            self.delivered_no_ack += 1
            if is_known:
                self.persister.origins.resolve(message.origin.channel, message.origin.tag, True)
        else:
            self.delivered += 1
            self.lean_unacked += 1
        self.store.advance(place)
        return self.store.settle(place)

    cdef int settle_lean(self, Place* place, bint acked) except -1:
        """A delivery of lean mode ends; its message is nowhere else."""
        self.lean_unacked -= 1
        if acked:
            self.acked += 1
        else:
            self.rejected += 1
        if place.position == 0:
            return 0
        return self.persister.origins.resolve(
            place.position, <uint64_t> place.body_length << 32 | place.length, acked)

    cdef bint drain(self) except -1:
        """The ready messages before the mark of a purge go, and their publishers are told. False
        while some have to be read from disk or are left for another turn."""
        cdef QueueStore store = self.store
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
                if count == TURN_MESSAGES:
                    self.turn.touch_queue(self)
                    return False
                count += 1
                if message.flags & HAS_ORIGIN and self.is_ours(&message.origin):
                    self.persister.origins.resolve(
                        message.origin.channel, message.origin.tag, False)
                store.advance(&place)
                store.settle(&place)
            level = store.next_level(level)
        self.drain_to = 0
        if self.deleted:
            store.delete()
        return True

    # -- recovery ----------------------------------------------------------------------------------

    def recover(self) -> list:
        """Finds the messages of the last run again. Returns what was wrong."""
        problems = recover(self.open_store())
        if self.store.any_expires:
            self.features |= HAS_EXPIRY
        if self.store.total == 0:
            self.next_segment = self.store.unused_number()
            self.store = None
        return problems

    # -- delivering --------------------------------------------------------------------------------

    cdef bint is_served(self) noexcept:
        """Whether a message could go to a consumer at all."""
        return self._consumers is not None and not self.features & PAUSED

    def pause(self) -> None:
        """Nothing is delivered from now on, to consumers or gets; publishing goes on."""
        self.features |= PAUSED

    def resume(self) -> None:
        """Deliveries go on."""
        self.features &= ~PAUSED
        self.touch()

    cdef int touch(self) except -1:
        if not self.pending and self.store is not None and self.store.ready:
            self.turn.touch_queue(self)
        return 0

    def wake(self):
        """Something that delivery waited for is there."""
        if not self.pending:
            self.turn.touch_queue(self)

    cdef Consumer next_consumer(self):
        """Whose turn it is: the highest priority with room, and among equals the one that waited
        longest."""
        cdef list consumers = self._consumers
        cdef Py_ssize_t count = len(consumers)
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t end, at, _each
        cdef Consumer consumer, first
        if count == 1 or self.features & SINGLE_ACTIVE:
            # A single active consumer is the one that came first (`add_consumer`).
            consumer = <Consumer> consumers[0]
            return consumer if consumer.channel.can_take(consumer) else None
        while start < count:
            end = start
            first = <Consumer> consumers[start]
            while end < count and (<Consumer> consumers[end]).priority == first.priority:
                end += 1
            at = start + first.next_turn
            if at >= end:
                at = start
            for _each in range(end - start):
                consumer = <Consumer> consumers[at]
                at += 1
                if at == end:
                    at = start
                if consumer.channel.can_take(consumer):
                    first.next_turn = <uint32_t> (at - start)
                    return consumer
            start = end
        return None

    cdef int work(self) except -1:
        """Delivers what is ready; a long backlog goes on in the next turn."""
        cdef QueueStore store = self.store
        cdef Message message
        cdef Place place
        cdef Consumer consumer
        cdef uint32_t count = 0
        cdef uint64_t size = 0
        cdef int found
        if self.drain_to and not self.drain():
            return 0
        if self.deleted or store is None:
            if self.getters is not None and not self.deleted:
                self.serve_getters()
            return 0
        if self.dying is not None and self.dying.count:
            self.bury()
        if self.features & HAS_LENGTH_LIMIT and not self.is_served():
            self.shed()
        if self.getters is not None:
            self.serve_getters()
        if not self.is_served():
            if self.features & HAS_EXPIRY:
                self.expire()
            return 0
        while store.ready:
            if count >= TURN_MESSAGES or size >= TURN_BYTES:
                self.turn.touch_queue(self)
                break
            consumer = self.next_consumer()
            if consumer is None:
                break
            found = store.peek(&message, &place)
            if found != FOUND:
                break
            if self.features & HAS_EXPIRY and self.is_expired(&message):
                if not self.may_drop():
                    break
                store.advance(&place)
                self.drop(&place, DEAD_EXPIRED)
                continue
            if message.flags & BODY_IS_REFERENCE:
                found = store.resolve(&message, &place)
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
                continue
            consumer.channel.deliver(consumer, &message, &place)
            if self.holds:
                self.note_delivery(&message, &place, consumer.no_ack)
            store.advance(&place)
            count += 1
            size += message.body_length
            if place.redelivered:
                self.redelivered += 1
            if consumer.no_ack:
                self.delivered_no_ack += 1
                store.settle(&place)
            else:
                self.delivered += 1
        self.bytes_out += size
        if self.features & HAS_LENGTH_LIMIT:
            self.shed()
        if self.features & HAS_EXPIRY and not self.pending:
            self.expire()
        return 0

    cdef int serve_getters(self) except -1:
        """Answers waiting gets, oldest first, as far as messages can be read now."""
        cdef QueueStore store = self.store
        cdef Message message
        cdef Place place
        cdef int found
        while self.getters:
            if store is None or store.ready == 0:
                getter = self.getters.pop(0)
                self.got_empty += 1
                getter.empty(self)
                continue
            found = store.peek(&message, &place)
            if found == WAIT:
                return 0
            if found != FOUND:
                getter = self.getters.pop(0)
                self.got_empty += 1
                getter.empty(self)
                continue
            if self.features & HAS_EXPIRY and self.is_expired(&message):
                if not self.may_drop():
                    break
                store.advance(&place)
                self.drop(&place, DEAD_EXPIRED)
                continue
            if message.flags & BODY_IS_REFERENCE:
                found = store.resolve(&message, &place)
                if found == WAIT:
                    return 0
                if found != FOUND:
                    continue
            getter = self.getters.pop(0)
            if place.redelivered:
                self.redelivered += 1
            if self.features & HAS_DELIVERY_LIMIT and place.redelivered:
                self.show_returns(&message, &place)
            self.bytes_out += message.body_length
            self.hand_over(getter, &message, &place)
            if self.holds:
                self.note_delivery(&message, &place, getter.no_ack)
            store.advance(&place)
            if getter.no_ack:
                self.got_no_ack += 1
                store.settle(&place)
            else:
                self.got += 1
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

    cdef int hand_over(self, getter, Message* message, Place* place) except -1:
        getter.message(
            self, message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length], message.body[:message.body_length],
            (place.segment, place.position, place.length, place.redelivered, place.body_length))
        return 0

    def get(self, getter, *, bint forced=False) -> None:
        """Takes one message for `getter`: `.no_ack`, `.message(queue, exchange, routing_key,
        properties, body, place)` or `.empty(queue)`. A paused queue looks empty unless `forced`.

        The answer comes before the turn ends, or when a reader thread has fetched the message.
        """
        self.used_at = clock.now_ms
        if self.features & PAUSED and not forced:
            self.got_empty += 1
            getter.empty(self)
            return
        if self.getters is None:
            self.getters = []
        self.getters.append(getter)
        self.serve_getters()

    # -- settling ----------------------------------------------------------------------------------

    cdef int settle(self, Place* place, bint acked) except -1:
        if place.segment == 0:
            return self.settle_lean(place, acked)
        if self.deleted:
            return 0
        if acked:
            self.acked += 1
            if self.holds:
                self.resolve_place(place, True)
            return self.store.settle(place)
        self.rejected += 1
        return self.drop(place, DEAD_REJECTED)

    cdef int requeue(self, Place* place) except -1:
        if place.segment == 0:
            return self.settle_lean(place, False)
        if self.deleted:
            return 0
        if self.features & HAS_DELIVERY_LIMIT and (
                self.store.count_return(place) > self.limits.delivery_limit):
            return self.drop(place, DEAD_DELIVERY_LIMIT)
        self.store.requeue(place)
        if not self.pending and (self._consumers is not None or self.features):
            self.turn.touch_queue(self)
        return 0

    def settle_place(self, tuple place, bint acked=True) -> None:
        """Settles a message that a getter took, by the place it was told."""
        cdef Place at
        at.segment, at.position, at.length, at.redelivered, at.body_length = place
        self.settle(&at, acked)

    def requeue_place(self, tuple place) -> None:
        """Requeues a message that a getter took."""
        cdef Place at
        at.segment, at.position, at.length, at.redelivered, at.body_length = place
        self.requeue(&at)

    def purge(self) -> int:
        """Settles all ready messages; the unacked ones stay. Returns their number."""
        if self.holds and self.messages_ready:
            # Their publishers have to be told.
            count = self.messages_ready
            self.drain_to = self.store.end()
            self.wake()
            self.drain()
            return count
        return self.store.purge() if self.store is not None else 0

    # -- consumers ---------------------------------------------------------------------------------

    def expect_consumer(self, Consumer consumer) -> None:
        """A consumer is accepted: it counts from now on, and gets messages once it is added."""
        if self.expected is None:
            self.expected = []
        self.expected.append(consumer)

    def add_consumer(self, Consumer consumer) -> None:
        """Adds a consumer behind those of its priority. Raising conflicts is the channel's business
        (`exclusive_consumer_tag`)."""
        self.expected = [each for each in self.expected or () if each is not consumer] or None
        if self._consumers is None:
            self._consumers = []
        at = len(self._consumers)
        if not self.features & SINGLE_ACTIVE:
            for index, other in enumerate(self._consumers):
                if (<Consumer> other).priority < consumer.priority:
                    at = index
                    break
        self._consumers.insert(at, consumer)
        if self.store is not None:
            self.store.keep = True
        self.wake()

    def remove_consumer(self, Consumer consumer) -> None:
        """Takes a consumer away; the last one of an auto-delete queue takes the queue with it."""
        consumer.stop()
        if self.expected is not None and consumer in self.expected:
            self.expected = [each for each in self.expected if each is not consumer] or None
        elif self._consumers is not None and consumer in self._consumers:
            self.hand_turn_on(self._consumers.index(consumer))
            self._consumers.remove(consumer)
        else:
            return
        if self._consumers:
            # The next one may be the active one now.
            self.wake()
        else:
            self._consumers = None
            self.used_at = clock.now_ms
            if self.store is not None:
                self.store.keep = False
            if (self.expected is None and self.auto_delete and not self.deleted
                    and self.unused is not None):
                self.unused(self)

    cdef int hand_turn_on(self, Py_ssize_t at) except -1:
        """Before the consumer at an index goes: the turn of its equals stays where it is."""
        cdef Consumer leaving = <Consumer> self._consumers[at]
        cdef Consumer first
        cdef Py_ssize_t start = at
        cdef uint32_t turn
        while start > 0 and (<Consumer> self._consumers[start - 1]).priority == leaving.priority:
            start -= 1
        first = <Consumer> self._consumers[start]
        turn = first.next_turn
        if turn > <uint32_t> (at - start):
            turn -= 1
        if first is leaving and at + 1 < len(self._consumers):
            first = <Consumer> self._consumers[at + 1]
            if first.priority != leaving.priority:
                return 0
        first.next_turn = turn
        return 0

    # -- end ---------------------------------------------------------------------------------------

    def delete(self) -> int:
        """Ends the queue and removes its messages from memory and disk. Returns the number of ready
        ones."""
        count = self.messages_ready
        self.deleted = True
        if self.expiry_timer is not None:
            self.expiry_timer.cancel()
        self._consumers = self.expected = None
        if self.taken:
            for channel, tag in self.taken.values():
                self.persister.origins.resolve(channel, tag, False)
            self.taken = None
        if self.holds and self.messages_ready:
            self.drain_to = NO_END
            self.wake()
        elif self.store is not None:
            self.store.delete()
        if self.getters:
            getters, self.getters = self.getters, None
            for getter in getters:
                getter.empty(self)
        return count

    def close(self) -> None:
        """Clean stop. A queue that does not survive gives back what it refers to."""
        if self.store is not None and not self.deleted:
            if self.durable:
                self.store.close()
            else:
                self.store.delete()

    def rest_if_idle(self, double now, double after) -> None:
        """Called now and then: a queue without traffic for `after` seconds gives back what it does
        not need."""
        cdef uint64_t moved = (self.published + self.acked + self.delivered_no_ack
                               + self.got_no_ack + self.rejected)
        if moved != self.moved:
            self.moved = moved
            self.idle_since = now
        elif self.store is not None and not self.deleted and now - self.idle_since >= after:
            self.store.rest()
            if (type(self.store) is QueueStore and self.store.total == 0
                    and self.store.segments == 0):
                self.next_segment = self.store.unused_number()
                self.store = None

    @property
    def idle_since_ms(self):
        return None
