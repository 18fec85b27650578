# cython: language_level=3
"""Hands messages of a queue over to others, in slices, as if they had always been there.

A message keeps its properties, headers, exchange, routing key, the time of its publishing, whether
it was delivered and how often it came back. The source's message is settled when the queues that
took it have it on disk, so that a crash may double it but never lose it.
"""

import functools

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.features.transfer.hand_over cimport (
    AT_BOUND, DONE, FULL, HandOver, IN_FLIGHT, MORE, PACED, PART, READING, UNROUTED,
)
from broker.features.transfer.rules cimport Rules
from broker.features.transfer.wide cimport WideTransfer
from broker.kernel cimport clock
from broker.kernel.contracts cimport NEEDS_SYNC, REJECTED
from broker.kernel.message cimport HAS_ORIGIN, Message, Place, WAS_DELIVERED
from broker.kernel.recording cimport EVENT_COPIED, EVENT_MOVED
from broker.queues.classic cimport ClassicQueue
from broker.queues.dying cimport Dying
from broker.queues.limits cimport HAS_EXPIRY
from broker.store.log.browse cimport Browse
from broker.store.log.contracts cimport EMPTY, FOUND, WAIT
from broker.store.log.shared_refs cimport place_key
from broker.store.log.walk cimport Walk

from broker.store.log.walk import mark_exactly

cdef enum:
    CLOCK_EVERY = 8              # messages between two looks at the clock
    IN_FLIGHT_MAX = 16384        # messages that wait for the disk
    BOUND_BYTES = 256 << 10      # of a segment, between two notes of a copy's progress


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
                if ((count & (CLOCK_EVERY - 1) == 0 or self.hand_over.wide is not None)
                        and clock.monotonic_ns() >= until):
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
        """Looks at one message, and hands it over if it is wanted; or to the next of very many
        queues."""
        cdef Message message
        cdef Place place
        cdef int found
        if self.is_giving:
            return self.give_more()
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
        if self.hand_over.wide is not None and place_key(&place) != place_key(&self.place):
            # A consumer has taken the one that it was asked for.
            self.hand_over.forget()
        found = self.move(&message, &place)
        if found == PART:
            self.place = place
            return MORE
        if found == FULL or found == UNROUTED or found == READING:
            return found
        return self.passed()

    cdef int passed(self) except -1:
        """The message at hand is handed over."""
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
        if self.hand_over.wide is not None:
            return self.begin_giving(message, place, returns)
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
        return self.moved(message, place, result, self.hand_over.held)

    cdef int moved(self, Message* message, Place* place, int result, int held) except -1:
        """All queues have the message; `held` of them answer its publisher later."""
        cdef ClassicQueue source = self.source
        if source.observer is not None:
            self.tell(EVENT_MOVED, place)
        source.counts.purged += 1
        source.counts.purged_bytes += place.body_length
        if source.confirms.holds:
            source.confirms.pass_origin(message, place, result, held)
        if result == NEEDS_SYNC and (source.durable or source.confirms.holds):
            if self.leaving is None:
                self.leaving = Dying()
            self.leaving.add(place, 0)
        else:
            self.walk.settle(place)
        return result

    # -- to very many queues -----------------------------------------------------------------------

    @property
    def is_halfway(self):
        """Whether some of very many queues have the message at hand, and others not."""
        return self.is_giving and self.hand_over.wide.is_given

    cdef int begin_giving(self, Message* message, Place* place, uint32_t returns) except -1:
        """All of very many queues would take the message at hand."""
        self.place = place[0]
        if not self.copies:
            self.walk.take(message, place)
        self.is_giving = True
        self.hand_over.is_kept = self.source.observer is not None
        self.hand_over.begin_giving(message, returns)
        return PART

    cdef int give_more(self) except -1:
        """Gives it to the next ones. Until all have it, it stays unsettled where it is."""
        cdef ClassicQueue source = self.source
        cdef WideTransfer wide = self.hand_over.wide
        cdef Message message          # only what its confirm waits for
        cdef int result
        message.flags = wide.flags
        message.origin = wide.message.origin
        result = self.hand_over.give_more(
            not self.copies and source.confirms.is_awaited(&message))
        if result == UNROUTED:
            self.let_be()
            return UNROUTED
        if result == PART or result == FULL:
            if not self.copies and source.confirms.holds:
                # A part stays for the queues that do not have it yet.
                source.confirms.pass_origin(&message, &self.place, REJECTED, self.hand_over.held)
            return MORE if result == PART else FULL
        self.is_giving = False
        self.hand_over.forget()
        if not self.copies:
            self.moved(&message, &self.place, result, self.hand_over.held)
        elif source.observer is not None:
            self.tell(EVENT_COPIED, &self.place)
        return self.passed()

    cpdef int let_be(self) except -1:
        """The message at hand goes to no further queue, and stays where it is: marked as
        redelivered, if one has it."""
        cdef bint is_given = self.is_halfway
        if self.is_giving:
            self.is_giving = False
            if (not self.copies and not self.source.deleted
                    and self.source.store is self.walk.store):
                self.walk.put_back(&self.place, is_given)
                self.is_doubled |= is_given
                self.source.touch()
        return self.hand_over.forget()

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
        back, unless one of them is needed."""
        self.let_be()
        self.is_over = True
        if (not self.copies and not self.source.deleted and not self.in_flight
                and not self.is_doubled):
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
