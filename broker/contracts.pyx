# cython: language_level=3
"""What the rooms of the hot chain know of each other: queue, channel, consumer and confirmer,
without their insides.

The wire implements `Channel`, the queues implement `Queue`; neither imports the other. They meet in
the vhost.
"""

from libc.stdint cimport uint32_t

from broker.kernel.message cimport Message, Place
from broker.kernel.turn cimport Task


cdef class Topology:
    """Rises with every change that can alter a route or a permission; route memos of an older
    version are void."""

    def __init__(self):
        self.version = 1

    def changed(self):
        self.version += 1


cdef class Confirmer:
    """A publisher whose confirms wait for rounds of the persister."""

    cdef int confirm(self) except -1:
        """A round is over: everything up to `flying` is on disk."""
        raise NotImplementedError

    cdef int write_confirm(self) except -1:
        """Writes what is confirmed and not yet told, before its connection writes."""
        raise NotImplementedError


cdef class Queue(Task):
    """A queue type. `features` zero in an implementation means the fast path."""

    cdef int publish(self, Message* message, bint confirm) except -1:
        """Takes a message; STORED, NEEDS_SYNC (stored, and a confirm has to wait for the disk) or
        REJECTED."""
        raise NotImplementedError

    cdef int settle(self, Place* place, bint acked) except -1:
        """Forgets a delivered message: acked, or rejected without requeue."""
        raise NotImplementedError

    cdef int requeue(self, Place* place) except -1:
        """Puts a delivered message back at its place."""
        raise NotImplementedError

    cdef int touch(self) except -1:
        """Something changed that may let the queue deliver."""
        raise NotImplementedError


cdef class Exchange:
    """What every exchange type shares. The types are in `broker.routing`."""

    def __init__(self, str name, *, bint durable=False, bint auto_delete=False,
                 bint internal=False, arguments=None):
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}


cdef class Channel(Confirmer):
    """The receiving end of deliveries."""

    cdef bint can_take(self, Consumer consumer) noexcept:
        """Whether one more delivery to this consumer is allowed now (prefetch, flow, socket)."""
        return False

    cdef int deliver(self, Consumer consumer, Message* message, Place* place) except -1:
        """Writes one delivery and, where it wants an ack, enters it in the ledger."""
        raise NotImplementedError


cdef class Consumer:
    """One consumer of one queue on one channel. Also stands for `basic.get`, with an empty tag, in
    ledger entries."""

    def __init__(self, Queue queue, Channel channel, str tag, bint no_ack, bint exclusive=False,
                 uint32_t prefetch_count=0, int priority=0, arguments=None, bint active=True):
        encoded = tag.encode("utf-8", "surrogateescape")
        self.queue = queue
        self.channel = channel
        self.tag = tag
        self.wire_tag = bytes([len(encoded)]) + encoded
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch_count = prefetch_count
        self.priority = priority
        self._arguments = arguments
        self.active = active
        self.unacked = 0

    @property
    def ack_required(self):
        return not self.no_ack

    @property
    def arguments(self):
        return self._arguments or {}

    def stop(self):
        """No more deliveries; entries in the ledger stay."""
        self.active = False
