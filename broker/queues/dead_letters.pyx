# cython: language_level=3
"""Messages that leave a queue without an ack. Where there is a dead-letter exchange each stays,
unacknowledged, until the queues behind that exchange have it on disk.
"""

import functools

from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport HELD, NEEDS_SYNC, Queue, REJECTED, STORED
from broker.kernel.large_body cimport body_of, set_body
from broker.kernel.message cimport BODY_IS_REFERENCE, Message, PERSISTENT, Place, set_parts
from broker.kernel.reached cimport is_wide
from broker.kernel.recording cimport EVENT_DEAD_LETTERED, EVENT_DISCARDED
from broker.queues.ack_confirms cimport AckConfirms, NOWHERE
from broker.queues.counters cimport (
    USE_DEAD_LETTER_REJECTED, USE_DEAD_LETTER_REJECTED_BYTES, USE_DISCARD_REJECTED,
    USE_DISCARD_REJECTED_BYTES,
)
from broker.queues.declared cimport DeclaredQueue
from broker.queues.dying cimport DEAD_EXPIRED, Death, Dying
from broker.queues.dying import reason_name
from broker.queues.unstored cimport Unstored
from broker.queues.wide_letter cimport WideLetter, only_to
from broker.store.bodies.wide_message cimport WideMessage
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.persister cimport Persister
from broker.store.files.body_record cimport REFERENCE_BYTES
from broker.store.files.planted cimport planted
from broker.store.log.contracts cimport FOUND, MessageStore, WAIT
from broker.store.log.shared_refs cimport place_key

cdef enum:
    TURN_LETTERS = 32            # dead letters that each queue may hand over in a turn
    LETTER_DROPS = 64            # messages that could be dropped in the time of one dead letter,
    ROUTE_DROPS = 512            # or in that of finding out that one goes to very many queues

# How long a dead letter waits before it is offered to a full queue again.
cdef double BURY_AGAIN_S = 0.25

# How long one to very many queues waits while too much waits for the disk.
cdef double UNTIL_WRITTEN_S = 0.02


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
        return self.dying is not None and self.dying.count or self.has_unstored()

    cdef bint has_unstored(self) noexcept:
        return self.unstored is not None and self.unstored.are_any()

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
            if self.dying is not None and self.dying.count:
                self.bury_heads(queue, store)
            if self.has_unstored():
                self.bury_put_off(queue, store)
        finally:
            queue.turn.burying = False
        return 0

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
            # One that is on its way to very many queues does without its record.
            found = FOUND if self.wide is not None else store.read(&place, &message)
            if found == WAIT:
                break
            result = STORED
            if found == FOUND:
                self.place = place_key(&place)
                self.gives_many = True
                if self.wide is None:
                    result = self.bury_message(queue, store, &message, death.reason, &held)
                if self.wide is not None:
                    result = self.bury_wide(queue, death.reason, &message, &held)
                if confirms.holds:
                    # As with a refused one, a part stays for the queues that do not have it yet.
                    confirms.pass_origin(
                        &message, &place, REJECTED if result == PUT_OFF else result, held)
            elif confirms.holds:
                confirms.resolve_place(&place, False)
            if result == PUT_OFF and self.persister.tail_bytes <= self.persister.tail_limit:
                queue.turn.touch_queue(queue)
                break
            if result == REJECTED or result == PUT_OFF:
                self.bury_later(queue, BURY_AGAIN_S if result == REJECTED else UNTIL_WRITTEN_S)
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
                self.persister.hurry_acks()
        if leaving is not None:
            self.persister.after_round(functools.partial(self.buried, queue, store, leaving))
        return 0

    cdef int bury_later(self, DeclaredQueue queue, double seconds) except -1:
        if not self.buries_again:
            self.buries_again = True
            queue.later(seconds, functools.partial(self.bury_again, queue))
        return 0

    def bury_again(self, DeclaredQueue queue):
        """Room may have come where a dead letter was refused."""
        self.buries_again = False
        if not queue.pending:
            queue.turn.touch_queue(queue)

    def buried(self, DeclaredQueue queue, MessageStore store, Dying leaving):
        """What `bury` handed over is on disk."""
        clock.refresh()
        self.persister.hurry_acks()
        if not queue.deleted:
            queue.note_held(queue.now())
        while leaving.count:
            if self.confirms.holds:
                self.confirms.resolve_place(&leaving.head().place, True)
            if not queue.deleted:
                store.settle(&leaving.head().place)
            leaving.pop()

    # -- never stored ------------------------------------------------------------------------------

    cdef int bury_unstored(self, DeclaredQueue queue, MessageStore store, Message* message,
                           int reason) except -1:
        """The same for a message that was never stored. Queues that refuse it do without. If its
        dead letter goes to very many, it waits in memory; one that expired does not, but has to be
        stored by the caller: PUT_OFF."""
        cdef set takers = self.takers
        cdef set waits = self.waits
        cdef int before = self.buried_result
        cdef int result = PUT_OFF
        cdef int held = 0
        if not self.has_unstored() and queue.turn.drops_left > 0:
            self.forget_takers()
            self.place = 0
            self.gives_many = False
            queue.turn.hops += 1
            try:
                result = self.bury_message(queue, store, message, reason, &held)
            finally:
                queue.turn.hops -= 1
                self.takers, self.waits = takers, waits
                self.buried_result = before
            if result == PUT_OFF:
                # A chunk may hold thousands of them.
                queue.turn.drops_left -= ROUTE_DROPS
        if result == PUT_OFF and reason != DEAD_EXPIRED:
            return self.put_off(queue, message, reason)
        return result

    cdef int put_off(self, DeclaredQueue queue, Message* message, int reason) except -1:
        """Keeps a message that was never stored. What is more than may wait is given up."""
        if self.unstored is None:
            self.unstored = Unstored(
                queue.turn, self.bounds.refused_backlog, self.persister.tail_limit)
        if self.unstored.add(queue, message, reason):
            if not queue.pending:
                queue.turn.touch_queue(queue)
            return STORED
        self.give_up(reason, message.body_length)
        self.place = 0
        return self.tell(queue, EVENT_DISCARDED, (), b"", b"")

    cdef int bury_put_off(self, DeclaredQueue queue, MessageStore store) except -1:
        """Continues with the oldest of those, for a part of a turn."""
        cdef set takers = self.takers
        cdef set waits = self.waits
        cdef int before = self.buried_result
        cdef int result = STORED
        if self.persister.tail_bytes > self.persister.tail_limit:
            return self.bury_later(queue, UNTIL_WRITTEN_S)
        self.forget_takers()
        self.place = 0
        try:
            result = self.pass_on(queue, store)
        finally:
            self.takers, self.waits = takers, waits
            self.buried_result = before
            if result != PUT_OFF:
                self.drop_first()
        if result == PUT_OFF and self.passing is None:
            return self.bury_later(queue, UNTIL_WRITTEN_S)    # until its body is read
        if self.has_unstored() and not queue.pending:
            queue.turn.touch_queue(queue)
        return 0

    cdef int pass_on(self, DeclaredQueue queue, MessageStore store) except -1:
        """What `bury_put_off` does for one: PUT_OFF if it is not over."""
        cdef WideMessage kept
        cdef WideLetter letter
        cdef int reason = self.unstored.reason()
        cdef int result
        cdef int held = 0
        if self.passing is None:
            self.gives_many = True
            kept = self.unstored.first()
            result = self.bury_message(queue, store, &kept.message, reason, &held)
            if self.passing is None:
                return result
        letter = self.passing
        if not letter.go_on_a_turn(False):
            return PUT_OFF
        if letter.refused is None and letter.taken:
            self.went(queue, reason, letter.message.body_length, letter.queues(),
                      letter.exchange, letter.routing_key)
        elif letter.refused is None:
            self.go_nowhere(queue, reason, letter.message.body_length, &held)
        return STORED

    cdef int drop_first(self) except -1:
        """The oldest of those is over."""
        cdef WideLetter letter = self.passing
        self.passing = None
        self.unstored.drop_first()
        return letter.end() if letter is not None else 0

    # -- one of them -------------------------------------------------------------------------------

    cdef void forget_takers(self) noexcept:
        """The next dead letter has not been offered to any queue."""
        self.takers = self.waits = None
        self.buried_result = STORED

    cdef int bury_message(self, DeclaredQueue queue, MessageStore store, Message* message,
                          int reason, int* held) except -1:
        """Publishes one dead letter. STORED or NEEDS_SYNC, or REJECTED while a target queue is
        full; `held` queues answer its publisher later, or NOWHERE. One to very many queues is made
        ready (`wide`, or `passing` if it was never stored), or PUT_OFF if not `gives_many`."""
        cdef Message letter
        cdef bytes exchange, routing_key, properties, reference
        cdef object body = b""
        cdef BodyStore bodies = queue.bodies
        cdef int result
        cdef bint goes_wide, shared
        held[0] = 0
        found = queue.dead_letter(
            queue, reason_name(reason), message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length])
        goes_wide = found is not None and is_wide(found[0])
        if goes_wide and not self.gives_many:
            return PUT_OFF
        if not goes_wide and self.waits is not None:
            found = only_to(self.waits, found)
            if found is None:
                return self.all_have_it(queue, reason, message.body_length, None)
        if found is not None and message.flags & BODY_IS_REFERENCE and message.body == NULL and (
                goes_wide or need_body(<tuple> found[0])):
            result = store.find_body(message)
            if result == WAIT:
                return REJECTED if self.place else PUT_OFF
            if result != FOUND:
                found = None
        if found is None:
            return self.go_nowhere(queue, reason, message.body_length, held)
        way, exchange, routing_key, properties, passes = found
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
                  and (goes_wide or PyTuple_GET_SIZE(way) > 1)
                  and letter.body_length >= bodies.embed_below)
        if goes_wide:
            return self.make_wide(queue, message.flags, &letter, (way, passes), shared)
        if shared:
            bodies.share(&letter)
        result = self.offer(<tuple> way, &letter, self.confirms.is_awaited(message), held)
        if shared:
            bodies.release(letter.reference)
        if result != REJECTED:
            self.went(queue, reason, message.body_length, <tuple> way, exchange, routing_key)
        return result

    cdef int make_wide(self, DeclaredQueue queue, uint8_t flags, Message* letter, found,
                       bint shared) except -1:
        """The letter goes to very many queues; `flags` are those of the message that died."""
        cdef WideLetter wide = WideLetter()
        wide.flags = flags
        wide.takers, wide.only = self.takers, self.waits
        wide.is_kept = queue.observer is not None
        wide.begin(letter, found, queue.bodies, shared)
        if self.place:
            self.wide = wide
        else:
            self.passing = wide
        return STORED

    cdef int bury_wide(self, DeclaredQueue queue, int reason, Message* message,
                       int* held) except -1:
        """The same for `wide`, as far as a turn has time; PUT_OFF: the next one has to continue. Of
        `message` only what its confirm waits for is filled in."""
        cdef WideLetter wide = self.wide
        cdef bint is_over
        message.flags = wide.flags
        message.origin = wide.message.origin
        held[0] = 0
        if self.persister.tail_bytes > self.persister.tail_limit:
            return PUT_OFF            # to many queues it may be more than may wait for the disk
        try:
            is_over = wide.go_on_a_turn(self.confirms.is_awaited(message))
        except Exception:
            self.end_wide()           # the next try begins anew
            raise
        held[0] = wide.held
        if not is_over:
            return PUT_OFF
        self.buried_result |= wide.result & NEEDS_SYNC
        self.end_wide()
        if wide.refused is not None:
            self.waits = wide.refused
            return REJECTED
        if not wide.taken and self.waits is None:
            return self.go_nowhere(queue, reason, wide.message.body_length, held)
        return self.all_have_it(queue, reason, wide.message.body_length, wide)

    cdef int all_have_it(self, DeclaredQueue queue, int reason, uint64_t size,
                         WideLetter wide) except -1:
        """A letter to very many queues is with all of them. `wide` is None if those that had
        refused it are gone."""
        cdef int result = self.buried_result
        if wide is None:
            self.went(queue, reason, size, (), b"", b"")
        else:
            self.went(queue, reason, size, wide.queues(), wide.exchange, wide.routing_key)
        self.forget_takers()
        return result

    cdef void end_wide(self):
        """It is offered to no further queue."""
        if self.wide is not None:
            self.wide.end()
            self.wide = None

    cdef int end(self) except -1:
        """The queue is deleted, or closed."""
        self.end_wide()
        while self.has_unstored():
            self.drop_first()
        return 0

    cdef int go_nowhere(self, DeclaredQueue queue, int reason, uint64_t size, int* held) except -1:
        """No queue gets the dead letter: it is gone."""
        cdef DeathCounters deaths = self.counted()
        deaths.unrouted[reason] += 1
        deaths.unrouted_bytes[reason] += size
        self.forget_takers()
        held[0] = NOWHERE
        self.tell(queue, EVENT_DISCARDED, (), b"", b"")
        return STORED

    cdef int went(self, DeclaredQueue queue, int reason, uint64_t size, tuple targets,
                  bytes exchange, bytes routing_key) except -1:
        """All queues have the dead letter."""
        cdef DeathCounters deaths = self.counted()
        self.tell(queue, EVENT_DEAD_LETTERED, targets, exchange, routing_key)
        self.lettered += 1
        deaths.lettered[reason] += 1
        deaths.lettered_bytes[reason] += size
        return 0

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
