# cython: language_level=3
"""Messages that leave a queue without an ack. Where there is a dead-letter exchange each stays,
unacknowledged, until the queues behind that exchange have it on disk.
"""

import functools

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport HELD, NEEDS_SYNC, Queue, REJECTED, STORED
from broker.kernel.large_body cimport body_of, set_body
from broker.kernel.message cimport BODY_IS_REFERENCE, Message, PERSISTENT, Place, set_parts
from broker.kernel.recording cimport EVENT_DEAD_LETTERED, EVENT_DISCARDED
from broker.queues.ack_confirms cimport AckConfirms, NOWHERE
from broker.queues.counters cimport (
    USE_DEAD_LETTER_REJECTED, USE_DEAD_LETTER_REJECTED_BYTES, USE_DISCARD_REJECTED,
    USE_DISCARD_REJECTED_BYTES,
)
from broker.queues.declared cimport DeclaredQueue
from broker.queues.dying cimport Death, Dying
from broker.queues.dying import reason_name
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.persister cimport Persister
from broker.store.files.body_record cimport REFERENCE_BYTES
from broker.store.files.planted cimport planted
from broker.store.log.contracts cimport FOUND, MessageStore, WAIT
from broker.store.log.shared_refs cimport place_key

cdef enum:
    TURN_LETTERS = 32            # dead letters that each queue may hand over in a turn
    LETTER_DROPS = 64            # messages that could be dropped in the time of one dead letter

# How long a dead letter waits before it is offered to a full queue again.
cdef double BURY_AGAIN_S = 0.25


cdef class DeathCounters:
    """How many messages died, and their bytes."""


cdef class DeadLetters:
    """The messages of a queue that wait to be handed over."""

    def __init__(self, AckConfirms confirms, Persister persister, bounds):
        self.confirms = confirms
        self.persister = persister
        self.bounds = bounds

    cdef int give_up(self, int reason, uint64_t size) except -1:
        """A message with a body of this size leaves, and there is no dead-letter exchange."""
        cdef DeathCounters deaths = self.counted()
        deaths.given_up[reason] += 1
        deaths.given_up_bytes[reason] += size
        return 0

    cdef int add(self, Place* place, int reason) except -1:
        """A message waits to be handed over."""
        if self.dying is None:
            self.dying = Dying(self.bounds.refused_backlog)
        return self.dying.add(place, reason)

    cdef bint are_waiting(self) noexcept:
        return self.dying is not None and self.dying.count

    cdef bint are_choked(self) noexcept:
        """Whether dead letters wait for a full queue: no further message dies until they are
        moved."""
        return self.dying is not None and self.dying.count >= self.dying.most

    # -- handing over ------------------------------------------------------------------------------

    cdef int bury(self, DeclaredQueue queue, MessageStore store) except -1:
        """Publishes the waiting dead letters. Only one queue does so at a time: a target queue may
        make room by its own work, may be this queue, or may dead-letter to this queue."""
        if queue.turn.burying:
            queue.turn.touch_queue(queue)
            return 0
        queue.turn.burying = True
        try:
            return self.bury_heads(queue, store)
        finally:
            queue.turn.burying = False

    cdef int bury_heads(self, DeclaredQueue queue, MessageStore store) except -1:
        """The oldest dead letters first. Each is settled here once the queues that took it have it
        on disk, so that a crash may double it but never lose it."""
        cdef AckConfirms confirms = self.confirms
        cdef Dying dying = self.dying
        cdef Dying leaving = None
        cdef Death* death
        cdef Place place
        cdef Message message
        cdef int result, found
        cdef int held = 0
        cdef uint32_t count = 0
        while dying.count:
            if count >= TURN_LETTERS and queue.turn.drops_left <= 0:
                queue.turn.touch_queue(queue)
                break
            queue.turn.drops_left -= LETTER_DROPS
            death = dying.head()
            place = death.place
            found = store.read(&place, &message)
            if found == WAIT:
                break
            result = STORED
            if found == FOUND:
                self.place = place_key(&place)
                result = self.bury_message(queue, store, &message, death.reason, &held)
                if confirms.holds:
                    confirms.pass_origin(&message, &place, result, held)
            elif confirms.holds:
                confirms.resolve_place(&place, False)
            if result == REJECTED:
                if not self.buries_again:
                    self.buries_again = True
                    queue.later(BURY_AGAIN_S, functools.partial(self.bury_again, queue))
                break
            self.forget_takers()
            dying.pop()
            count += 1
            if result == NEEDS_SYNC and (queue.durable or confirms.holds) and (
                    not planted(b"hand over unsynced")):
                if leaving is None:
                    leaving = Dying()
                leaving.add(&place, 0)
            else:
                store.settle(&place)
        if leaving is not None:
            self.persister.after_round(functools.partial(self.buried, queue, store, leaving))
        return 0

    def bury_again(self, DeclaredQueue queue):
        """Room may have come where a dead letter was refused."""
        self.buries_again = False
        if not queue.pending:
            queue.turn.touch_queue(queue)

    def buried(self, DeclaredQueue queue, MessageStore store, Dying leaving):
        """What `bury` handed over is on disk."""
        clock.refresh()
        if not queue.deleted:
            queue.note_held(queue.now())
        while leaving.count:
            if self.confirms.holds:
                self.confirms.resolve_place(&leaving.head().place, True)
            if not queue.deleted:
                store.settle(&leaving.head().place)
            leaving.pop()

    cdef int bury_unstored(self, DeclaredQueue queue, MessageStore store, Message* message,
                           int reason) except -1:
        """The same for a message that was never stored. Queues that refuse it do without."""
        cdef set takers = self.takers
        cdef int before = self.buried_result
        cdef int result
        cdef int held = 0
        self.forget_takers()
        self.place = 0
        queue.turn.hops += 1
        try:
            result = self.bury_message(queue, store, message, reason, &held)
        finally:
            queue.turn.hops -= 1
        self.takers = takers
        self.buried_result = before
        return result

    cdef void forget_takers(self) noexcept:
        """The next dead letter has not been offered to any queue."""
        self.takers = None
        self.buried_result = STORED

    cdef int bury_message(self, DeclaredQueue queue, MessageStore store, Message* message,
                          int reason, int* held) except -1:
        """Publishes one dead letter. STORED or NEEDS_SYNC, or REJECTED while a target queue is
        full; `held` queues answer its publisher later, or NOWHERE."""
        cdef Message letter
        cdef bytes exchange, routing_key, properties, reference
        cdef tuple targets
        cdef object body = b""
        cdef BodyStore bodies = queue.bodies
        cdef DeathCounters deaths
        cdef int result
        cdef bint shared
        held[0] = 0
        found = queue.dead_letter(
            queue, reason_name(reason), message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length])
        if found is not None and message.flags & BODY_IS_REFERENCE and message.body == NULL and (
                need_body(<tuple> found[0])):
            result = store.find_body(message)
            if result == WAIT:
                return REJECTED
            if result != FOUND:
                found = None
        deaths = self.counted()
        if found is None:
            deaths.unrouted[reason] += 1
            deaths.unrouted_bytes[reason] += message.body_length
            self.forget_takers()
            held[0] = NOWHERE
            self.tell(queue, EVENT_DISCARDED, (), b"", b"")
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
        shared = (not letter.flags & BODY_IS_REFERENCE and bodies is not None
                  and len(targets) > 1 and letter.body_length >= bodies.embed_below)
        if shared:
            bodies.share(&letter)
        result = self.offer(targets, &letter, self.confirms.is_awaited(message), held)
        if shared:
            bodies.release(letter.reference)
        if result != REJECTED:
            self.tell(queue, EVENT_DEAD_LETTERED, targets, exchange, routing_key)
            self.lettered += 1
            deaths.lettered[reason] += 1
            deaths.lettered_bytes[reason] += message.body_length
        return result

    cdef int tell(self, DeclaredQueue queue, int event, tuple targets, bytes exchange,
                  bytes routing_key) except -1:
        """The history learns where the dead letter at hand went."""
        if queue.observer is not None:
            queue.observer.passed_on(event, self.place, targets, exchange, routing_key)
        return 0

    cdef int offer(self, tuple targets, Message* letter, bint has_origin, int* held) except -1:
        """Queues that have the letter already (`takers`) do not get it again; all others do, so a
        binding that an operator changes meanwhile counts."""
        cdef Queue target
        cdef set takers = self.takers or set()
        cdef int result = self.buried_result
        cdef int count = 0
        cdef int answer
        cdef bint is_refused = False
        for target in targets:
            if self.takers is not None and target in self.takers:
                continue
            answer = target.receive(letter, has_origin)
            if answer == REJECTED:
                is_refused = True
            else:
                takers.add(target)
                result |= answer & NEEDS_SYNC
                count += answer == HELD
        held[0] = count
        if is_refused:
            self.takers = takers
            self.buried_result = result
            return REJECTED
        self.forget_takers()
        return result

    # -- what is counted ---------------------------------------------------------------------------

    cdef DeathCounters counted(self):
        if self.deaths is None:
            self.deaths = DeathCounters()
        return self.deaths

    cdef void use(self, uint64_t* row) noexcept:
        """Fills a row of the usage feed."""
        cdef DeathCounters deaths = self.deaths
        cdef int reason
        if deaths is None:
            return
        for reason in range(REASON_COUNT):
            row[USE_DEAD_LETTER_REJECTED + 2 * reason] = deaths.lettered[reason]
            row[USE_DEAD_LETTER_REJECTED_BYTES + 2 * reason] = deaths.lettered_bytes[reason]
            row[USE_DISCARD_REJECTED + 2 * reason] = (
                deaths.given_up[reason] + deaths.unrouted[reason])
            row[USE_DISCARD_REJECTED_BYTES + 2 * reason] = (
                deaths.given_up_bytes[reason] + deaths.unrouted_bytes[reason])


cdef bint need_body(tuple targets) except -1:
    """Whether one of these queues takes no reference to a shared body."""
    cdef Queue target
    for target in targets:
        if not target.shares:
            return True
    return False
