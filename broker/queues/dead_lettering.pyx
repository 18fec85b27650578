# cython: language_level=3
"""Messages that leave a queue without an ack. Where there is a dead-letter exchange each stays,
unacknowledged, until the queues behind that exchange have it on disk.
"""

import functools

from libc.stdint cimport uint8_t, uint32_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport HELD, NEEDS_SYNC, Queue, REJECTED, STORED
from broker.kernel.large_body cimport body_of, set_body
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, HAS_ORIGIN, Message, PERSISTENT, Place, set_parts,
)
from broker.queues.confirming cimport ConfirmingQueue, NOWHERE
from broker.queues.dying cimport DEAD_EXPIRED, DEAD_MAXLEN, Death, Dying
from broker.queues.dying import reason_name
from broker.queues.limits cimport HAS_DEAD_LETTERS
from broker.store.files.body_record cimport REFERENCE_BYTES
from broker.store.files.planted cimport planted
from broker.store.log.queue_store cimport FOUND, WAIT

cdef enum:
    TURN_LETTERS = 32            # dead letters that each queue may hand over in a turn
    LETTER_DROPS = 64            # messages that could be dropped in the time of one dead letter
    HOPS_MAX = 16                # queues that a message passes without being stored in one

# How long a dead letter waits before it is offered to a full queue again.
cdef double BURY_AGAIN_S = 0.25


cdef class DeadLetteringQueue(ConfirmingQueue):
    """With messages that leave it unacked."""

    cdef int drop(self, Message* message, Place* place, int reason) except -1:
        """A message that was taken leaves without an ack. Where there is a dead-letter exchange it
        stays unacknowledged until it is safe behind that (`bury`). `message` is NULL for one that
        was delivered."""
        if reason == DEAD_EXPIRED:
            self.expired += 1
            self.expired_bytes += place.body_length
        elif reason == DEAD_MAXLEN:
            self.dropped += 1
            self.dropped_bytes += place.body_length
        if not self.features & HAS_DEAD_LETTERS:
            self.given_up[reason] += 1
            self.given_up_bytes[reason] += place.body_length
            if not self.holds:
                return self.store.settle(place)
        if message != NULL and self.holds:
            self.note_origin(message, place)
        if self.dying is None:
            self.dying = Dying(self.bounds.refused_backlog)
        self.dying.add(place, reason)
        if not self.pending:
            self.turn.touch_queue(self)
        return 0

    cdef bint is_choked(self) noexcept:
        """Whether dead letters wait for a full queue: no further message dies until they are
        moved."""
        return self.dying is not None and self.dying.count >= self.dying.most

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

    def deaths(self) -> dict:
        return {reason_name(reason): (self.given_up[reason], self.lettered[reason])
                for reason in range(REASON_COUNT)}

    # -- handing over ------------------------------------------------------------------------------

    cdef int bury(self) except -1:
        """Publishes the waiting dead letters. Only one queue does so at a time: a target queue may
        make room by its own work, may be this queue, or may dead-letter to this queue."""
        if self.turn.burying:
            self.turn.touch_queue(self)
            return 0
        self.turn.burying = True
        try:
            return self.bury_heads()
        finally:
            self.turn.burying = False

    cdef int bury_heads(self) except -1:
        """The oldest dead letters first. Each is settled here once the queues that took it have it
        on disk, so that a crash may double it but never lose it."""
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
            elif self.holds:
                self.resolve_place(&place, False)
            if result == REJECTED:
                if not self.buries_again:
                    self.buries_again = True
                    self.later(BURY_AGAIN_S, self.bury_again)
                break
            self.forget_takers()
            dying.pop()
            count += 1
            if result == NEEDS_SYNC and (self.durable or self.holds) and (
                    not planted(b"hand over unsynced")):
                if leaving is None:
                    leaving = Dying()
                leaving.add(&place, 0)
            else:
                self.store.settle(&place)
        if leaving is not None:
            self.persister.after_round(functools.partial(self.buried, leaving))
        return 0

    def bury_again(self):
        """Room may have come where a dead letter was refused."""
        self.buries_again = False
        self.wake()

    def buried(self, Dying leaving):
        """What `bury` handed over is on disk."""
        clock.refresh()
        if not self.deleted:
            self.note_held(self.now())
        while leaving.count:
            if self.holds:
                self.resolve_place(&leaving.head().place, True)
            if not self.deleted:
                self.store.settle(&leaving.head().place)
            leaving.pop()

    cdef int bury_unstored(self, Message* message, int reason) except -1:
        """The same for a message that was never stored. Queues that refuse it do without."""
        cdef set takers = self.takers
        cdef int before = self.buried_result
        cdef int result
        self.forget_takers()
        self.turn.hops += 1
        try:
            result = self.bury_message(message, reason)
        finally:
            self.turn.hops -= 1
        self.takers = takers
        self.buried_result = before
        return result

    cdef bint may_pass_on(self) noexcept:
        """Whether a new message may pass to the next queue without being stored here. The number of
        queues that it may pass so is limited, because each calls the next."""
        return self.turn.hops < HOPS_MAX

    cdef void forget_takers(self) noexcept:
        """The next dead letter has not been offered to any queue."""
        self.takers = None
        self.buried_result = STORED

    cdef int bury_message(self, Message* message, int reason) except -1:
        """Publishes one dead letter. STORED or NEEDS_SYNC, or REJECTED while a target queue is
        full. Queues that have it already (`takers`) do not get it again; all others do, so a
        binding that an operator changes meanwhile counts."""
        cdef Message letter
        cdef bytes exchange, routing_key, properties, reference
        cdef object body = b""
        cdef Queue target
        cdef int result = self.buried_result
        cdef int held = 0
        cdef int answer
        cdef bint is_refused = False
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
        if found is None:
            self.unrouted[reason] += 1
            self.unrouted_bytes[reason] += message.body_length
            self.forget_takers()
            self.held_letters = NOWHERE
            return STORED
        targets, exchange, routing_key, properties = found
        # A target may be this queue, whose buffers move when it stores a message.
        if message.body != NULL:
            body = body_of(message)
        set_parts(&letter, exchange, routing_key, properties, b"")
        set_body(&letter, body)
        if message.body == NULL:
            letter.body = NULL
            letter.body_length = message.body_length
        letter.flags = message.flags & (PERSISTENT | BODY_IS_REFERENCE)
        if letter.flags & BODY_IS_REFERENCE:
            reference = message.reference[:REFERENCE_BYTES]
            letter.reference = <const uint8_t*> <char*> reference
        letter.timestamp = clock.now_ms
        letter.origin = message.origin
        shared = (not letter.flags & BODY_IS_REFERENCE and self.bodies is not None
                  and len(targets) > 1 and letter.body_length >= self.bodies.embed_below)
        if shared:
            self.bodies.share(&letter)
        takers = self.takers or set()
        for target in targets:
            if self.takers is not None and target in self.takers:
                continue
            answer = target.receive(&letter, has_origin)
            if answer == REJECTED:
                is_refused = True
            else:
                takers.add(target)
                result |= answer & NEEDS_SYNC
                held += answer == HELD
        if shared:
            self.bodies.release(letter.reference)
        self.held_letters = held
        if is_refused:
            self.takers = takers
            self.buried_result = result
            return REJECTED
        self.forget_takers()
        self.dead_lettered += 1
        self.lettered[reason] += 1
        self.lettered_bytes[reason] += message.body_length
        return result
