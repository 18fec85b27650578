# cython: language_level=3
"""Direct reply-to: a queue that stands for the reply consumer of one channel.

A requester consumes from `amq.rabbitmq.reply-to` and publishes with that name as reply-to. The
broker replaces it by the name of the requester's own reply queue, with a token that cannot be
guessed. A message published to the default exchange with that name as routing key is delivered at
once and never stored; if the requester has disconnected, it is unroutable.
"""

from libc.stdint cimport uint64_t

from broker.kernel.contracts cimport Consumer, Queue, STORED
from broker.kernel.message cimport Message, Place

PSEUDO_NAME = "amq.rabbitmq.reply-to"


cdef uint64_t _dropped = 0


def dropped_replies():
    """Replies that were dropped since the start, as their requester did not take what came."""
    return _dropped


cdef class ReplyQueue(Queue):
    """`came()` is called when its consumer is there, `gone(queue)` when it ends: routes change."""

    def __init__(self, str name, came, gone):
        self.name = name
        self.came = came
        self.gone = gone

    cdef int publish(self, Message* message, bint confirm) except -1:
        global _dropped
        cdef Consumer consumer = self.consumer
        cdef Place place
        place.segment = place.position = place.length = 0
        place.redelivered = place.body_length = 0
        # A client that replies is never blocked: replies that the requester does not take in time
        # are dropped. Only a requester without room is asked how full it is.
        if consumer is not None and consumer.active and (
                consumer.channel.can_take(consumer) or not consumer.channel.connection.is_stuck):
            consumer.channel.deliver(consumer, message, &place)
        else:
            _dropped += 1
        return STORED

    cdef int settle(self, Place* place, bint acked) except -1:
        return 0

    cdef int requeue(self, Place* place) except -1:
        return 0

    cdef int touch(self) except -1:
        return 0

    cdef int work(self) except -1:
        return 0

    def add_consumer(self, Consumer consumer):
        self.consumer = consumer
        # A reply that came before it found none, and that way is remembered.
        self.came()

    def remove_consumer(self, Consumer consumer):
        consumer.stop()
        self.consumer = None
        self.deleted = True
        self.gone(self)
