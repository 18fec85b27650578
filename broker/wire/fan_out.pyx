# cython: language_level=3
"""A message on its way to very many queues: they get it in several turns of the loop, so that other
clients are served meanwhile.

Who publishes to 100,000 queues at once would take 15 ms of one turn, and 900 ms with the first
message, for which each queue makes its store.
"""

from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.contracts cimport Exchange, HELD, Queue, REJECTED
from broker.kernel.large_body cimport body_of, set_body
from broker.kernel.message cimport BODY_IS_REFERENCE, Message, set_parts
from broker.kernel.reached cimport Reached
from broker.store.bodies.store cimport BodyStore
from broker.store.files.body_record cimport REFERENCE_BYTES

# A queue whose tail grows may have the C library sort 10,000 pieces that were freed, a millisecond.
cdef enum:
    QUEUES_A_STEP = 16


cdef class FanOut:
    """One message of a channel, with all that it points to. A queue that is deleted meanwhile does
    not get it."""

    def __init__(self, Exchange exchange, found, bint mandatory, uint64_t version):
        self.exchange = exchange
        self.found = found
        self.mandatory = mandatory
        self.version = version

    cdef int keep(self, Message* message) except -1:
        """Copies the message, or takes it with its memory if that is large."""
        self.exchange_name = message.exchange[:message.exchange_length]
        self.routing_key = message.routing_key[:message.routing_key_length]
        self.properties = message.properties[:message.properties_length]
        self.body = body_of(message)
        self.message = message[0]
        set_parts(&self.message, self.exchange_name, self.routing_key, self.properties, b"")
        set_body(&self.message, self.body)
        return 0

    cdef int begin(self, targets, BodyStore bodies, uint32_t share_from) except -1:
        """These queues get it; a large body is stored once for all of them."""
        if type(targets) is Reached:
            self.reached = targets
        else:
            self.targets = targets
        self.count = len(targets)
        self.found = None
        if bodies is not None and self.count and (
                self.message.body_length >= share_from or self.message.large != NULL):
            bodies.share(&self.message)
            # The body leaves the memory of the store with the next round.
            self.reference = self.message.reference[:REFERENCE_BYTES]
            self.message.reference = <const uint8_t*> <char*> self.reference
        return 0

    cdef bint give(self, bint confirm, connection) except -1:
        """Gives it to the next queues. Whether all have it."""
        cdef Py_ssize_t until = min(self.at + QUEUES_A_STEP, self.count)
        cdef Queue queue
        cdef int answer
        while self.at < until:
            queue = <Queue> (self.reached.things[self.at] if self.targets is None
                             else PyTuple_GET_ITEM(self.targets, self.at))
            self.at += 1
            if queue.is_deleted():
                continue
            answer = (queue.receive(&self.message, confirm) if self.reference is not None
                      else queue.publish(&self.message, confirm))
            self.result |= answer
            self.held += answer == HELD
            if answer & REJECTED:
                queue.note_refused(connection)
        return self.at == self.count

    cdef int end(self, BodyStore bodies) except -1:
        """All queues that there are have it, or none gets it any more."""
        if self.reference is not None:
            bodies.release(<const uint8_t*> <char*> self.reference)
            self.message.flags &= ~BODY_IS_REFERENCE
            self.reference = None
        return 0
