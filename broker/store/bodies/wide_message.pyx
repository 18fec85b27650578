# cython: language_level=3
"""A message on its way to very many queues: they get it in several turns of the loop, so that other
clients are served meanwhile.

Who gives a message to 100,000 queues at once takes 15 ms of one turn, and 900 ms with the first
message, for which each queue makes its store. What differs is added by who has such messages: a
channel (`broker/wire/fan_out.pyx`), dead letters and delayed messages
(`broker/queues/wide_letter.pyx`), and transfers (`broker/features/transfer/wide.pyx`).
"""

from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint8_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport HELD, Queue
from broker.kernel.large_body cimport body_of, set_body
from broker.kernel.message cimport BODY_IS_REFERENCE, Message, set_parts
from broker.kernel.reached cimport Reached
from broker.store.bodies.store cimport BodyStore
from broker.store.files.body_record cimport REFERENCE_BYTES

from broker.kernel.steps import first_step

# A queue whose tail grows may have the C library sort 10,000 pieces that were freed, a millisecond.
cdef enum:
    QUEUES_A_STEP = 16


cdef class WideMessage:
    """The message with all that it points to. A queue that is deleted meanwhile does not get it;
    what is bound meanwhile may count or not."""

    cdef int keep(self, Message* message) except -1:
        """Copies the message, or takes its body with its memory if that is large."""
        self.exchange = message.exchange[:message.exchange_length]
        self.routing_key = message.routing_key[:message.routing_key_length]
        self.properties = message.properties[:message.properties_length]
        self.message = message[0]
        set_parts(&self.message, self.exchange, self.routing_key, self.properties, b"")
        if message.body != NULL or not message.flags & BODY_IS_REFERENCE:
            self.body = body_of(message)
            set_body(&self.message, self.body)
        else:
            self.message.body = NULL
            self.message.body_length = message.body_length
        if message.flags & BODY_IS_REFERENCE:
            self.reference = message.reference[:REFERENCE_BYTES]
            self.message.reference = <const uint8_t*> <char*> self.reference
        return 0

    cdef int share(self, BodyStore bodies) except -1:
        """Its body is stored once for all queues."""
        bodies.share(&self.message)
        self.bodies = bodies
        # The body leaves the memory of the store with the next round.
        self.reference = self.message.reference[:REFERENCE_BYTES]
        self.message.reference = <const uint8_t*> <char*> self.reference
        return 0

    cdef int hold(self, BodyStore bodies) except -1:
        """The body that it refers to, if it does, stays until the `end`."""
        if self.message.flags & BODY_IS_REFERENCE:
            bodies.take(self.message.reference, False)
            self.holding = bodies
        return 0

    cdef int note(self, found) except -1:
        """These queues get it, or those that these steps find."""
        if type(found) is tuple:
            self.targets, self.steps = found, None
        elif type(found) is Reached:
            self.reached, self.steps = found, None
        else:
            self.steps = found
            return 0
        self.count = len(found)
        return 0

    cdef Queue queue_at(self, Py_ssize_t at):
        return <Queue> (self.reached.things[at] if self.targets is None
                        else PyTuple_GET_ITEM(self.targets, at))

    cdef bint give(self, bint confirm) except -1:
        """Offers it to the next of its queues. Whether all were."""
        cdef Py_ssize_t until = min(self.at + QUEUES_A_STEP, self.count)
        cdef Queue queue
        cdef int answer
        while self.at < until:
            queue = self.queue_at(self.at)
            self.at += 1
            if not queue.is_deleted():
                answer = self.offer(queue, confirm)
                self.result |= answer
                self.held += answer == HELD
        if self.reached is not None and not self.is_kept:
            # All at once would take a long turn.
            self.reached.let_go(self.at)
        return self.at == self.count

    cdef bint go_on(self, bint confirm, int64_t nanoseconds) except -1:
        """Finds further queues, or offers it to the next ones, for so long. Whether all were
        offered it."""
        cdef int64_t until = clock.monotonic_ns() + nanoseconds
        while True:
            if self.steps is not None:
                self.note(first_step(self.steps))
            elif self.give(confirm):
                return True
            if clock.monotonic_ns() >= until:
                return False

    cdef int offer(self, Queue queue, bint confirm) except -1:
        """What the queue answers, as `Queue.publish`."""
        return queue.receive(&self.message, confirm)

    cdef tuple queues(self):
        """Its queues, if it `is_kept`."""
        if not self.is_kept:
            return ()
        return tuple(self.reached) if self.targets is None else self.targets

    cdef int end(self) except -1:
        """No further queue gets it."""
        if self.holding is not None:
            self.holding.drop(<const uint8_t*> <char*> self.reference)
            self.holding = None
        if self.bodies is not None:
            self.bodies.release(<const uint8_t*> <char*> self.reference)
            self.message.flags &= ~BODY_IS_REFERENCE
            self.bodies = self.reference = None
        return 0
