# cython: language_level=3
"""A message that a channel publishes to very many queues."""

from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.contracts cimport Exchange, Queue, REJECTED
from broker.store.bodies.wide_message cimport WideMessage
from broker.store.bodies.store cimport BodyStore


cdef class FanOut(WideMessage):
    """The message, published to the exchange `target`. `found` are its queues, or the steps that
    find them."""

    def __init__(self, connection, Exchange target, found, bint mandatory, uint64_t version):
        self.connection = connection
        self.target = target
        self.found = found
        self.mandatory = mandatory
        self.version = version

    cdef int begin(self, found, BodyStore bodies, uint32_t share_from) except -1:
        """These queues get it; a large body is stored once for all of them."""
        self.note(found)
        self.found = None
        if bodies is not None and self.count and (
                self.message.body_length >= share_from or self.message.large != NULL):
            self.share(bodies)
        return 0

    cdef int offer(self, Queue queue, bint confirm) except -1:
        cdef int answer = queue.receive(&self.message, confirm)
        if answer & REJECTED:
            queue.note_refused(self.connection)
        return answer
