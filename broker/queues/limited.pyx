# cython: language_level=3
"""What limits a queue: its length, and the time of its messages."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport REJECTED, STORED
from broker.kernel.message cimport Message, Place
from broker.queues.dead_lettering cimport DeadLetteringQueue, REASON_COUNT
from broker.queues.declared cimport (
    ACK, BYTES, CONFIRM, DELIVER, DELIVER_NO_ACK, GET, GET_EMPTY, GET_NO_ACK, PUBLISH, READY,
    REDELIVER, REJECT, UNACKED, USE_DEAD_LETTER_REJECTED, USE_DEAD_LETTER_REJECTED_BYTES,
    USE_DISCARD_REJECTED, USE_DISCARD_REJECTED_BYTES, USE_EXPIRED, USE_EXPIRED_BYTES, USE_REFUSED,
    USE_REFUSED_BYTES,
)
from broker.queues.dying cimport DEAD_EXPIRED, DEAD_MAXLEN
from broker.queues.limits cimport CONFIRM_ON_ACK, HAS_DEAD_LETTERS, HAS_EXPIRY, Limits, ttl_of
from broker.queues.refusals cimport Refusals
from broker.store.log.queue_store cimport FOUND, LEVELS

cdef int64_t NEVER = (<int64_t> 1) << 62


cdef class LimitedQueue(DeadLetteringQueue):
    """With limits, from its declaration and from policies."""

    # -- length ------------------------------------------------------------------------------------

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
            self.bury_unstored(message, DEAD_MAXLEN)
        return REJECTED

    @property
    def refused(self):
        """How many publishes were refused because the queue was full."""
        return self.refusals.total if self.refusals is not None else 0

    cdef int sample(self, double* row, double* signs) except -1:
        row[PUBLISH] = self.published
        row[DELIVER] = self.delivered
        row[DELIVER_NO_ACK] = self.delivered_no_ack
        row[GET] = self.got
        row[GET_NO_ACK] = self.got_no_ack
        row[GET_EMPTY] = self.got_empty
        row[ACK] = self.acked
        row[REDELIVER] = self.redelivered
        row[REJECT] = self.rejected
        row[CONFIRM] = self.confirmed
        row[UNACKED] = self.lean_unacked
        if self.store is not None:
            row[READY] = self.store.ready
            row[UNACKED] += self.store.total - self.store.ready
            row[BYTES] = self.store.total_bytes
        signs[0] = len(self._consumers) if self._consumers is not None else 0
        if self.expected is not None:
            signs[0] += len(self.expected)
        signs[1] = self.features
        signs[2] = <double> <size_t> <void*> self.limits
        signs[3] = <double> (self.expired + self.dropped + self.dead_lettered)
        if self.refusals is not None:
            signs[3] += self.refusals.total
        return 0

    cdef int use(self, int64_t now, uint64_t* row) except -1:
        cdef int reason
        DeadLetteringQueue.use(self, now, row)
        row[USE_EXPIRED] = self.expired
        row[USE_EXPIRED_BYTES] = self.expired_bytes
        if self.refusals is not None:
            row[USE_REFUSED] = self.refusals.total
            row[USE_REFUSED_BYTES] = self.refusals.bytes
        for reason in range(REASON_COUNT):
            row[USE_DEAD_LETTER_REJECTED + 2 * reason] = self.lettered[reason]
            row[USE_DEAD_LETTER_REJECTED_BYTES + 2 * reason] = self.lettered_bytes[reason]
            row[USE_DISCARD_REJECTED + 2 * reason] = self.given_up[reason] + self.unrouted[reason]
            row[USE_DISCARD_REJECTED_BYTES + 2 * reason] = (
                self.given_up_bytes[reason] + self.unrouted_bytes[reason])
        return 0

    def note_refused(self, connection):
        if self.refusals is not None:
            self.refusals.name_publisher(connection)

    cdef int drop_heads(self) except -1:
        """After a message is taken: the oldest ready ones go until the limit holds."""
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

    # -- time --------------------------------------------------------------------------------------

    cdef int64_t message_ttl(self) noexcept:
        return self.limits.message_ttl if self.limits is not None else -1

    cdef bint is_expired(self, Message* message) noexcept:
        """Whether a message's time is over; with a TTL of 0 not yet for consumers of its turn."""
        cdef int64_t ttl = ttl_of(message, self.message_ttl())
        # Milliseconds are cut off on both sides: only the next one is late enough for sure.
        return ttl >= 0 and message.timestamp + ttl < clock.now_ms

    cdef int expire_at_once(self, Message* message) except -1:
        """A message whose TTL is over before a consumer could take it is never stored."""
        cdef int result = STORED
        self.published += 1
        self.bytes_in += message.body_length
        self.expired += 1
        self.expired_bytes += message.body_length
        if self.features & HAS_DEAD_LETTERS:
            result = self.bury_unstored(message, DEAD_EXPIRED)
        else:
            self.given_up[DEAD_EXPIRED] += 1
            self.given_up_bytes[DEAD_EXPIRED] += message.body_length
            if self.features & CONFIRM_ON_ACK:
                result = REJECTED
        return result

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
            self.drop(&message, &place, DEAD_EXPIRED)
        return NEVER

    def expiry_due(self):
        """The timer of `expire`: the head's deadline is here."""
        self.expiry_timer = None
        self.wake()

    # -- policies ----------------------------------------------------------------------------------

    def reconfigure(self, effective) -> None:
        """Takes other limits: the x-arguments that hold now by declaration and policies, which are
        checked. Messages that are there go by them too, from this turn on, but for those that
        consumers take at once."""
        cdef uint32_t before = self.limits.features() if self.limits is not None else 0
        self.deliver_pending()
        self.features &= ~before
        self.limits = Limits(effective) if effective else None
        if self.limits is not None:
            self.features |= self.limits.features()
        if self.expiry_timer is not None:
            self.expiry_timer.cancel()
            self.expiry_timer = None
        for consumer in self.consumers:
            consumer.channel.watch_acks_of(consumer)
        if self.store is None:
            return
        if before & HAS_EXPIRY and self.store.total:
            # Among the messages may be some with a TTL of their own.
            self.features |= HAS_EXPIRY
        if self.store.ready and self.features:
            self.wake()
