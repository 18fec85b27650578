# cython: language_level=3
"""Hands messages of a queue over to others, in slices, as if they had always been there.

A message keeps its properties, headers, exchange, routing key, the time of its publishing, whether
it was delivered and how often it came back. The source's message is settled when the queues that
took it have it on disk, so that a crash may double it but never lose it.
"""

import functools

from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel.contracts cimport HELD, NEEDS_SYNC, Queue, REJECTED, STORED
from broker.features.transfer.rules cimport Rules
from broker.store.log.walk cimport Walk
from broker.kernel cimport clock
from broker.kernel.buffer cimport load16
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, EXPIRES, HAS_ORIGIN, Message, PERSISTENT, Place, WAS_DELIVERED, set_parts,
)
from broker.kernel.recording cimport EVENT_COPIED, EVENT_MOVED
from broker.queues.classic cimport ClassicQueue
from broker.queues.dying cimport Dying
from broker.queues.limits cimport HAS_EXPIRY, HAS_LENGTH_LIMIT
from broker.store.files.body_record cimport REFERENCE_BYTES
from broker.store.log.browse cimport Browse
from broker.store.log.contracts cimport EMPTY, FOUND, MessageStore, WAIT
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.shared_refs cimport place_key
from broker.store.files.record cimport ORIGIN_BYTES, record_bytes

from broker.store.log.walk import mark_exactly

cdef enum:
    CLOCK_EVERY = 8              # messages between two looks at the clock
    IN_FLIGHT_MAX = 16384        # messages that wait for the disk
    BOUND_BYTES = 256 << 10      # of a segment, between two notes of a copy's progress


cdef class HandOver:
    """Gives messages to the queues that `route(routing key, properties)` names, as (queues,
    exchange or None for that of the message), or (no queues, the reason). `refusal` says why one
    was not taken. `same_bodies`: a shared body can be referred to where the message goes.
    `allowed` is for those who take messages out of a source: they ask it first."""

    def __init__(self, route, bint same_bodies, uint64_t handed=0, uint64_t handed_bytes=0):
        self.route = route
        self.same_bodies = same_bodies
        self.handed = handed
        self.handed_bytes = handed_bytes
        self.allowed = UINT64_MAX

    def give_row(self, bytes exchange, bytes routing_key, bytes properties, bytes body,
                 int64_t timestamp, bint persistent, bint doubtful) -> int:
        """Hands a message of a stream over. 0 if it was, FULL or UNROUTED if not."""
        cdef Message message
        cdef int refused
        set_parts(&message, exchange, routing_key, properties, body)
        message.flags = PERSISTENT if persistent else 0
        if load16(message.properties) >> 8 & 1:
            message.flags |= EXPIRES
        if doubtful:
            message.flags |= WAS_DELIVERED
        message.timestamp = timestamp
        clock.refresh()
        refused = self.ask(None, &message)
        if refused or self.give(&message, 0, False) == FULL:
            return refused or FULL
        return 0

    cdef int ask(self, ClassicQueue source, Message* message) except -1:
        """Before a message is taken (`source` is None for one of a stream): finds its queues and
        its body. 0 if each of them would take it, else FULL, UNROUTED, READING or LOST."""
        cdef Queue target
        cdef int found
        cdef bint by_reference = message.flags & BODY_IS_REFERENCE and self.same_bodies
        self.targets, told = self.route(
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length])
        if not self.targets:
            self.refusal = told
            return UNROUTED
        self.exchange = message.exchange[:message.exchange_length] if told is None else told
        for target in self.targets:
            if not target.shares:
                by_reference = False
            if isinstance(target, ClassicQueue) and not has_room(
                    <ClassicQueue> target, message, target is not source):
                self.refusal = f"queue '{target.name}' is full and refuses more messages"
                return FULL
        self.body = None
        if by_reference:
            return 0
        if message.body == NULL:
            found = source.store.find_body(message)
            if found != FOUND:
                return READING if found == WAIT else LOST
        self.body = message.body[:message.body_length]
        return 0

    cdef int give(self, Message* message, uint32_t returns, bint has_origin) except -1:
        """Publishes what was `ask`ed for: STORED or NEEDS_SYNC, or FULL if a queue refuses it after
        all (`is_given`: others have it)."""
        cdef Message letter
        cdef bytes reference
        cdef bytes routing_key = message.routing_key[:message.routing_key_length]
        cdef bytes properties = message.properties[:message.properties_length]
        cdef Queue target
        cdef int result = STORED
        cdef int answer
        self.held = 0
        self.is_given = False
        # A target may be the source, or dead-letter to it: its buffers move when it stores one.
        set_parts(&letter, self.exchange, routing_key, properties, self.body or b"")
        letter.flags = message.flags & (PERSISTENT | EXPIRES | WAS_DELIVERED)
        if self.body is None:
            letter.flags |= BODY_IS_REFERENCE
            letter.body = NULL
            letter.body_length = message.body_length
            reference = message.reference[:REFERENCE_BYTES]
            letter.reference = <const uint8_t*> <char*> reference
        letter.origin = message.origin
        timestamp = message.timestamp
        for target in self.targets:
            # A stream and a delaying exchange go by the time at which they get a message.
            is_classic = isinstance(target, ClassicQueue)
            letter.timestamp = timestamp if is_classic else clock.now_ms
            if is_classic and returns:
                answer = receive_returned(<ClassicQueue> target, &letter, returns, has_origin)
            else:
                answer = target.receive(&letter, has_origin)
            if answer == REJECTED:
                self.refusal = f"queue '{getattr(target, 'name', '')}' refused the message"
                return FULL
            self.is_given = True
            result |= answer & NEEDS_SYNC
            self.held += answer == HELD
        self.handed += 1
        self.handed_bytes += letter.body_length
        return result


cdef int receive_returned(ClassicQueue queue, Message* letter, uint32_t returns,
                          bint confirm) except -1:
    """Publishes a message that came back so often before."""
    cdef MessageStore part = queue.store.part_for(letter) if queue.store is not None else None
    cdef uint64_t before = part.end() if part is not None else 0
    cdef uint64_t after
    cdef int answer = queue.receive(letter, confirm)
    part = queue.store.part_for(letter) if queue.store is not None else None
    after = part.end() if part is not None else 0
    if answer != REJECTED and after != before and after & 0xFFFFFFFF:
        after -= record_bytes(letter) + (ORIGIN_BYTES if answer == HELD else 0)
        (<QueueStore> part).note_returns(<uint32_t> (after >> 32), <uint32_t> after, returns)
    return answer


cdef bint has_room(ClassicQueue queue, Message* message, bint may_serve) except -1:
    """Whether the queue would take the message. It is not asked by a publish, which may dead-letter
    what it refuses."""
    if not queue.features & HAS_LENGTH_LIMIT or not queue.limits.rejects:
        return True
    if queue.store is None:
        queue.open_store()
    if not queue.is_full(message):
        return True
    if may_serve and queue.is_served():
        queue.serve_consumers()
    return not queue.is_full(message)


cdef class Mover:
    """Moves or copies the ready messages of a queue. `most` is how many are handed over at most,
    0 for any number."""

    def __init__(self, ClassicQueue source, Walk walk, Rules rules, HandOver hand_over, *,
                 bint copies, uint64_t most=0):
        self.source = source
        self.walk = walk
        self.rules = rules
        self.hand_over = hand_over
        self.copies = copies
        self.most = most
        self.bound_level = -1

    def resume(self, uint64_t looked, uint64_t matched, doubtful):
        """It began in an earlier run. Places up to `doubtful` (level, place), or None, may have
        been handed over before a crash; these copies are marked as redelivered."""
        self.looked = looked
        self.matched = matched
        self.doubtful = doubtful

    def may_go_to(self):
        """The next bound for a copy, beyond all that was passed: (level, place)."""
        return self.walk.level, self.walk.at + BOUND_BYTES

    def set_bound(self, int level, uint64_t at):
        """A copy may go on up to this place."""
        self.bound_level = level
        self.bound = at

    def go_on(self, int64_t nanoseconds) -> int:
        """Works for so long at most. Why it stopped: a word of this module."""
        cdef int64_t until = clock.monotonic_ns() + nanoseconds
        cdef int state = MORE
        cdef uint32_t count = 0
        if self.source.deleted or self.source.store is not self.walk.store:
            return DONE
        clock.refresh()
        self.source.note_held(self.source.now())
        try:
            while state == MORE:
                if count & (CLOCK_EVERY - 1) == 0 and clock.monotonic_ns() >= until:
                    break
                count += 1
                state = self.step()
        finally:
            if self.leaving is not None:
                leaving, self.leaving = self.leaving, None
                self.in_flight += (<Dying> leaving).count
                self.source.persister.after_round(functools.partial(self.settled, leaving))
        return state

    cdef bint is_doubtful(self):
        level, at = self.doubtful
        return self.walk.level > level or (self.walk.level == level and self.walk.at <= at)

    cdef int step(self) except -1:
        """Looks at one message, and hands it over if it is wanted."""
        cdef Message message
        cdef Place place
        cdef int found
        if self.most and self.hand_over.handed >= self.most:
            return DONE
        if self.in_flight >= IN_FLIGHT_MAX:
            return IN_FLIGHT
        found = self.walk.next(&message, &place)
        if found != FOUND:
            return READING if found == WAIT else DONE
        if self.copies and (self.walk.level != self.bound_level or self.walk.at >= self.bound):
            return AT_BOUND
        if self.source.features & HAS_EXPIRY and self.source.is_expired(&message):
            self.walk.passed()
            return MORE
        if not self.rules.match(&message):
            self.looked += 1
            self.walk.passed()
            return MORE
        if self.hand_over.handed >= self.hand_over.allowed:
            return PACED
        found = self.move(&message, &place)
        if found == FULL or found == UNROUTED or found == READING:
            return found
        self.looked += 1
        self.matched += 1
        self.walk.passed()
        return MORE

    cdef int move(self, Message* message, Place* place) except -1:
        cdef ClassicQueue source = self.source
        cdef uint32_t returns = self.walk.returns_of(place)
        cdef bint has_origin = (not self.copies and message.flags & HAS_ORIGIN
                                and source.confirms.is_ours(&message.origin))
        cdef int result = self.hand_over.ask(source, message)
        if result:
            return result
        if place.redelivered or (self.doubtful is not None and self.is_doubtful()):
            message.flags |= WAS_DELIVERED
        if self.copies:
            result = self.hand_over.give(message, returns, False)
            if result != FULL and source.observer is not None:
                self.tell(EVENT_COPIED, place)
            return result
        self.walk.take(message, place)
        result = FULL
        try:
            result = self.hand_over.give(message, returns, has_origin)
        finally:
            if result == FULL:
                self.walk.put_back(place, self.hand_over.is_given)
        if result == FULL:
            return FULL
        if source.observer is not None:
            self.tell(EVENT_MOVED, place)
        source.counts.purged += 1
        source.counts.purged_bytes += place.body_length
        if source.confirms.holds:
            source.confirms.pass_origin(message, place, result, self.hand_over.held)
        if result == NEEDS_SYNC and (source.durable or source.confirms.holds):
            if self.leaving is None:
                self.leaving = Dying()
            self.leaving.add(place, 0)
        else:
            self.walk.settle(place)
        return result

    cdef int tell(self, int event, Place* place) except -1:
        """Where the message at hand went."""
        return self.source.observer.passed_on(
            event, place_key(place), self.hand_over.targets, self.hand_over.exchange, b"")

    def settled(self, Dying leaving):
        """What was handed over is on disk where it went."""
        cdef ClassicQueue source = self.source
        self.in_flight -= leaving.count
        clock.refresh()
        if not source.deleted:
            source.note_held(source.now())
        while leaving.count:
            if source.confirms.holds:
                source.confirms.resolve_place(&leaving.head().place, True)
            if not source.deleted:
                self.walk.settle(&leaving.head().place)
            leaving.pop()
        if self.is_over:
            self.end()

    def end(self):
        """No further message is handed over: when all is settled, the marks of the walk are taken
        back."""
        self.is_over = True
        if not self.copies and not self.source.deleted and not self.in_flight:
            mark_exactly(self.walk.store)


cdef class Preview:
    """How many of the first `most` ready messages of a queue the rules take."""

    cdef ClassicQueue source
    cdef Rules rules
    cdef Browse browse
    cdef uint64_t most
    cdef readonly uint64_t looked
    cdef readonly uint64_t matched

    def __init__(self, ClassicQueue source, Rules rules, uint64_t most):
        self.source = source
        self.rules = rules
        self.most = most

    def go_on(self, int64_t nanoseconds) -> int:
        """Looks a little further: DONE, MORE or READING."""
        cdef int64_t until = clock.monotonic_ns() + nanoseconds
        cdef Message message
        cdef Place place
        cdef int found
        if self.source.deleted or self.source.store is None:
            return DONE
        if self.browse is None or self.browse.store is not self.source.store:
            self.browse = Browse(self.source.store)
        clock.refresh()
        self.browse.interrupt()
        while self.looked < self.most:
            if clock.monotonic_ns() >= until:
                return MORE
            found = self.browse.next(&message, &place)
            if found == WAIT:
                return READING
            if found == EMPTY:
                return DONE
            if self.source.features & HAS_EXPIRY and self.source.is_expired(&message):
                continue
            self.looked += 1
            self.matched += self.rules.match(&message)
        return DONE
