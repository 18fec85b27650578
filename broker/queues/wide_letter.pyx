# cython: language_level=3
"""A dead letter, or a message that was delayed, on its way to very many queues."""

from broker.kernel.contracts cimport Queue, REJECTED, STORED
from broker.kernel.message cimport Message
from broker.store.bodies.wide_message cimport WideMessage
from broker.store.bodies.store cimport BodyStore

cdef enum:
    TURN_NS = 500000             # what it takes of a turn


cdef class WideLetter(WideMessage):
    """Who has it is not noted, since that would be 100,000 objects once more: if some refuse it,
    `refused`, the next try is for these alone (`only`). Those in `full` count as refusing it."""

    cdef int begin(self, Message* letter, found, BodyStore bodies, bint shared) except -1:
        """Copies the letter. `found` are its queues, or the steps that find them, and `passes`.
        `shared`: its body is stored once for all of them."""
        targets, self.passes = found
        self.keep(letter)
        if shared:
            self.share(bodies)
        return self.note(targets)

    cdef bint go_on_a_turn(self, bint has_origin) except -1:
        """Continues for a part of a turn; `held` are those of this part that answer later."""
        self.held = 0
        return self.go_on(has_origin, TURN_NS)

    cdef int offer(self, Queue queue, bint confirm) except -1:
        """What a queue answers that took it; STORED for any other."""
        cdef int answer
        if (self.only is not None and queue not in self.only
                or self.takers is not None and queue in self.takers
                or self.passes is not None and not self.passes(queue)):
            return STORED
        answer = REJECTED
        if self.full is None or queue not in self.full:
            answer = queue.receive(&self.message, confirm)
        if answer == REJECTED:
            if self.refused is None:
                self.refused = set()
            self.refused.add(queue)
            return STORED
        self.taken += 1
        return answer


cdef only_to(set waits, found):
    """A letter that went to very many queues before, to those of them; None: it goes to none."""
    if found is None:
        return None
    way, exchange, routing_key, properties, _ = found
    targets = tuple([target for target in way if target in waits])
    return (targets, exchange, routing_key, properties, None) if targets else None
