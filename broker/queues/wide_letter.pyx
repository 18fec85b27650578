# cython: language_level=3
"""A dead letter on its way to very many queues, which get it in several turns of the loop, as those
of a message that a channel publishes do (`broker/wire/fan_out.pyx`)."""

from libc.stdint cimport uint8_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport HELD, NEEDS_SYNC, Queue, REJECTED
from broker.kernel.large_body cimport body_of, set_body
from broker.kernel.message cimport BODY_IS_REFERENCE, Message, set_parts
from broker.kernel.reached cimport Reached
from broker.store.bodies.store cimport BodyStore
from broker.store.files.body_record cimport REFERENCE_BYTES

from broker.kernel.steps import first_step

cdef enum:
    QUEUES_A_STEP = 16
    TURN_NS = 500000             # what it takes of a turn


cdef class WideLetter:
    """The letter with all that it points to. A queue that is deleted meanwhile does not get it;
    what is bound meanwhile may count or not. Who has it is not noted, since that would be 100,000
    objects once more: if some refuse it, `refused`, the next try is for these alone (`only`)."""

    cdef int keep(self, Message* letter, found, BodyStore bodies, bint shared) except -1:
        """Copies the letter. `found` are its queues, or the steps that find them, and `passes`.
        `shared`: its body is stored once for all of them."""
        targets, self.passes = found
        self.exchange = letter.exchange[:letter.exchange_length]
        self.routing_key = letter.routing_key[:letter.routing_key_length]
        self.properties = letter.properties[:letter.properties_length]
        if letter.body != NULL or letter.large != NULL:
            self.body = body_of(letter)
        self.message = letter[0]
        set_parts(&self.message, self.exchange, self.routing_key, self.properties, b"")
        if self.body is not None:
            set_body(&self.message, self.body)
        else:
            self.message.body = NULL
            self.message.body_length = letter.body_length
        if shared:
            bodies.share(&self.message)
            self.bodies = bodies
        if self.message.flags & BODY_IS_REFERENCE:
            self.reference = self.message.reference[:REFERENCE_BYTES]
            self.message.reference = <const uint8_t*> <char*> self.reference
        self.note(targets)
        return 0

    cdef int note(self, found) except -1:
        if type(found) is tuple:
            self.targets, self.steps = found, None
        elif type(found) is Reached:
            self.reached, self.steps = found, None
        else:
            self.steps = found
            return 0
        self.count = len(found)
        return 0

    cdef bint go_on(self, bint has_origin) except -1:
        """Finds further queues, or offers the letter to the next ones, for a part of a turn.
        Whether all were offered it."""
        cdef uint64_t until = clock.monotonic_ns() + TURN_NS
        self.held = 0
        while self.steps is not None or self.at < self.count:
            if self.steps is not None:
                self.note(first_step(self.steps))
            else:
                self.offer(has_origin)
            if clock.monotonic_ns() >= until:
                break
        return self.steps is None and self.at == self.count

    cdef int offer(self, bint has_origin) except -1:
        cdef Py_ssize_t until = min(self.at + QUEUES_A_STEP, self.count)
        cdef Queue target
        cdef int answer
        while self.at < until:
            target = <Queue> (<object> self.reached.things[self.at] if self.targets is None
                              else self.targets[self.at])
            self.at += 1
            if (target.is_deleted() or self.only is not None and target not in self.only
                    or self.takers is not None and target in self.takers
                    or self.passes is not None and not self.passes(target)):
                continue
            answer = target.receive(&self.message, has_origin)
            if answer == REJECTED:
                if self.refused is None:
                    self.refused = set()
                self.refused.add(target)
            else:
                self.taken += 1
                self.result |= answer & NEEDS_SYNC
                self.held += answer == HELD
        if self.reached is not None and not self.is_kept:
            # All at once would take a long turn.
            self.reached.let_go(self.at)
        return 0

    cdef tuple queues(self):
        """Its queues, if it `is_kept`."""
        if not self.is_kept:
            return ()
        return tuple(self.reached) if self.targets is None else self.targets

    cdef int end(self) except -1:
        """It is offered to no more queues."""
        if self.bodies is not None:
            self.bodies.release(<const uint8_t*> <char*> self.reference)
            self.bodies = None
        return 0
