# cython: language_level=3
"""What the modules of the hot chain use of each other: queue, channel, consumer and confirmer,
without their insides.

The wire implements `Channel` and `Confirmer`, the queues implement `Queue`; neither imports the
other. They meet in the vhost.
"""

from libc.stdint cimport uint8_t, uint32_t

from broker.kernel cimport clock
from broker.kernel.buffer cimport load16
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, EXPIRES, Message, PERSISTENT, Place, set_parts,
)
from broker.kernel.turn cimport Task


cdef class Topology:
    """Rises with every change that can alter a route or a permission; route memos of an older
    version are void."""

    def __init__(self):
        self.version = 1

    def changed(self):
        self.version += 1


cdef class Origins:
    """Who published what waits for its consumers: channels by serial numbers, which no two channels
    of one start of the broker share. With the number of the start (`boot`) and the publish's tag
    that makes an origin; one of another start, or of a channel that has ended, resolves nothing."""

    def __init__(self):
        self.confirmers = {}

    def enter(self, Confirmer confirmer) -> int:
        """A serial number for a channel."""
        self.last += 1
        self.confirmers[self.last] = confirmer
        return self.last

    def leave(self, uint32_t serial) -> None:
        """The channel has ended."""
        self.confirmers.pop(serial, None)

    cdef int resolve(self, uint32_t serial, uint64_t tag, bint acked) except -1:
        """A queue is done with a message: its consumer acked it, or it is lost."""
        confirmer = self.confirmers.get(serial)
        if confirmer is not None:
            (<Confirmer> confirmer).resolve(tag, acked)
        return 0

    cdef int more(self, uint32_t serial, uint64_t tag, int parts) except -1:
        """A message has become several."""
        confirmer = self.confirmers.get(serial)
        if confirmer is not None:
            (<Confirmer> confirmer).more_parts(tag, parts)
        return 0


cdef class Confirmer:
    """A publisher whose confirms wait for rounds of the persister."""

    cdef int confirm(self) except -1:
        """A round is over: everything up to `flying` is on disk."""
        raise NotImplementedError

    cdef int write_confirm(self) except -1:
        """Writes what is confirmed and not yet told, before its connection writes."""
        raise NotImplementedError

    cdef int resolve(self, uint64_t tag, bint acked) except -1:
        """One queue that answers late (HELD) is done with a publish."""
        raise NotImplementedError

    cdef int more_parts(self, uint64_t tag, int parts) except -1:
        """A publish waits for `parts` more answers."""
        raise NotImplementedError


cdef class Queue(Task):
    """A queue type. `features` zero in an implementation means the fast path."""

    def put(self, bytes exchange, bytes routing_key, bytes properties, bytes body,
            bint persistent, bytes reference=None) -> int:
        """Publishes a message that comes over no channel; nothing is confirmed. STORED (0),
        NEEDS_SYNC (1: it is safe after the next synced round) or REJECTED (2). `reference`: what
        `BodyStore.share_bytes` gave for the body."""
        cdef Message message
        set_parts(&message, exchange, routing_key, properties, body)
        message.flags = PERSISTENT if persistent else 0
        if load16(message.properties) >> 8 & 1:
            message.flags |= EXPIRES
        if reference is not None and self.shares:
            message.flags |= BODY_IS_REFERENCE
            message.reference = <const uint8_t*> <char*> reference
        clock.refresh()
        message.timestamp = clock.now_ms
        return self.publish(&message, False)

    cdef int receive(self, Message* message, bint confirm) except -1:
        """`publish` for a message whose body may be a shared one; the body itself is there too if
        not every queue `shares`."""
        cdef uint8_t flags = message.flags
        cdef int result
        if not self.shares:
            message.flags &= ~BODY_IS_REFERENCE
        result = self.publish(message, confirm)
        message.flags = flags
        return result

    cdef int publish(self, Message* message, bint confirm) except -1:
        """Takes a message; STORED, NEEDS_SYNC (stored, and a confirm has to wait for the disk),
        REJECTED, or HELD (stored; the queue resolves the message's origin)."""
        raise NotImplementedError

    cdef bint takes_runs(self) noexcept:
        """Whether `publish_run` and `ack_run` may be called: the queue looks at no message."""
        return False

    cdef int publish_run(self, Message* messages, uint32_t count, bint confirm) except -1:
        """Takes messages with equal flags and without an expiration. STORED or NEEDS_SYNC, for
        all of them."""
        raise NotImplementedError

    cdef bint is_deleted(self) noexcept:
        """Whether it is gone: a message that was to reach it has nowhere to go."""
        return False

    def note_refused(self, connection):
        """A publish of this connection was refused, by this queue or another of its route."""

    cdef int settle(self, Place* place, bint acked) except -1:
        """Forgets a delivered message: acked, or rejected without requeue."""
        raise NotImplementedError

    cdef int ack_run(self, Place* places, uint32_t count) except -1:
        """Forgets delivered messages of one segment that were acked."""
        raise NotImplementedError

    cdef int requeue(self, Place* place) except -1:
        """Puts a delivered message back at its place."""
        raise NotImplementedError

    cdef int touch(self) except -1:
        """Something changed that may let the queue deliver."""
        raise NotImplementedError

    cpdef int deliver_pending(self) except -1:
        """Delivers what came for it in this turn so far, before a method looks at the queue or
        changes who is served."""
        if self.pending:
            self.work()
        return 0

    def consumed_by(self, channel, tag, no_ack, exclusive, arguments):
        """What a new consumer with these arguments takes messages from: this queue, or a part of it
        that is the consumer's own. Raises PreconditionFailed."""
        return self

    def hold_back(self, bint on):
        """Deliveries wait until it is called once more with False, for each True: messages come
        back in slices."""

    def check_get(self):
        """Raises NotImplementedYet where messages cannot be got."""

    def expect_consumer(self, consumer):
        """A consumer is accepted and will be added once its client has been told."""


cdef class Exchange:
    """What every exchange type shares. The types are in `broker.routing`."""

    def __init__(self, str name, *, bint durable=False, bint auto_delete=False,
                 bint internal=False, arguments=None):
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}


cdef class Channel:
    """The receiving end of deliveries."""

    cdef bint can_take(self, Consumer consumer) noexcept:
        """Whether one more delivery to this consumer is allowed now (prefetch, flow, socket)."""
        return False

    cdef int deliver(self, Consumer consumer, Message* message, Place* place) except -1:
        """Writes one delivery and, where it wants an ack, enters it in the ledger."""
        raise NotImplementedError

    cdef int deliver_run(self, Consumer consumer, Message* messages, Place* places,
                         uint32_t count) except -1:
        """The same for messages that were never delivered, as many of them as the consumer can
        take. Returns how many; 0 if they have to go one by one."""
        return 0


cdef class Consumer:
    """One consumer of one queue on one channel. Also stands for `basic.get`, with an empty tag, in
    ledger entries."""

    def __init__(self, Queue queue, Channel channel, str tag, bint no_ack, bint exclusive=False,
                 uint32_t prefetch_count=0, int64_t priority=0, arguments=None, bint active=True):
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

    def limit(self, uint32_t prefetch_count):
        """Changes how many unacknowledged deliveries it may have; 0 is any number."""
        self.prefetch_count = prefetch_count
        self.queue.touch()

    def stop(self):
        """No more deliveries; entries in the ledger stay."""
        self.active = False
