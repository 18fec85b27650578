# cython: language_level=3
"""A read-only view of the ready messages of a queue: messages are not taken, marked, counted or
reordered."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.message cimport Message, Place
from broker.queues.classic cimport ClassicQueue
from broker.queues.limits cimport HAS_DELIVERY_LIMIT, HAS_EXPIRY
from broker.store.log.browse cimport Browse
from broker.store.log.contracts cimport FOUND, WAIT

cdef enum:
    TURN_LOOKS = 64              # messages that one call shows or passes over
    TURN_BYTES = 1 << 20         # and bytes that it copies


cdef class Peek:
    """Up to `count` messages, the next to be delivered first, of which at most `bytes_max` bytes
    are copied together, and `shown_bytes` of each body, -1 for all. The first one with more ends
    it; `too_large` is its length if it is the only one. `rows` holds (exchange, routing key,
    properties, body, length of the body, whether it was delivered before), each as bytes."""

    def __init__(self, ClassicQueue queue, Py_ssize_t count, uint64_t bytes_max,
                 int64_t shown_bytes=-1):
        self.queue = queue
        self.count = count
        self.bytes_left = bytes_max
        self.shown_bytes = shown_bytes
        self.rows = []

    def go_on(self):
        """Looks a little further. Returns 0 when all is seen, 1 to be called again in a later turn,
        2 if a thread has to read first."""
        cdef Message message
        cdef Place place
        cdef int found
        cdef uint32_t length, looks = 0
        cdef uint64_t copied = 0
        if self.queue.deleted or self.queue.store is None:
            return 0
        if self.store is not self.queue.store:
            # A queue that was empty meanwhile has another one.
            self.store = self.queue.store
            self.browse = Browse(self.store)
        clock.refresh()
        self.browse.interrupt()
        while len(self.rows) < self.count and self.bytes_left:
            if looks >= TURN_LOOKS or copied >= TURN_BYTES:
                return 1
            found = self.browse.next(&message, &place)
            if found == WAIT:
                return 2
            if found != FOUND:
                return 0
            looks += 1
            if self.queue.features & HAS_EXPIRY and self.queue.is_expired(&message):
                continue
            if self.queue.features & HAS_DELIVERY_LIMIT and place.redelivered:
                self.queue.show_returns(&message, &place)
            length = message.body_length
            if 0 <= self.shown_bytes < length:
                length = <uint32_t> self.shown_bytes
            if length > self.bytes_left:
                if not self.rows:
                    self.too_large = message.body_length
                return 0
            self.rows.append((
                message.exchange[:message.exchange_length],
                message.routing_key[:message.routing_key_length],
                message.properties[:message.properties_length], message.body[:length],
                message.body_length, bool(place.redelivered)))
            copied += length
            self.bytes_left -= length
        return 0
