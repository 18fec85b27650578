# cython: language_level=3
"""A queue as it was declared: what every type of queue has besides its messages."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport Queue
from broker.queues.counters cimport Backlog, USE_MESSAGES_MS, USE_MESSAGE_BYTES_MS
from broker.queues.latencies cimport Latencies


cdef class DeclaredQueue(Queue):
    """What every type is declared with, and what the statistics and the usage feed ask of it. A
    type gives it the `turn` and its `counts`. `incarnation` is the number of this declaration,
    never used twice in a vhost; `owner` is the connection of an exclusive queue, `declared_by` the
    name of the user who declared the queue."""

    def __init__(self, str vhost_name, str name, uint64_t incarnation, *, bint durable,
                 bint exclusive, bint auto_delete, arguments, owner, bounds):
        self.vhost_name = vhost_name
        self.name = name
        self.incarnation = incarnation
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self._arguments = arguments or None
        self.owner = owner
        self.bounds = bounds
        self.used_at = clock.now_ms
        self.backlog = Backlog()

    cdef int levels(self, Levels* found) except -1:
        """Fills in what the queue holds now. Lists of many queues read no more of each: `sample`
        reads the counters, too, which lie elsewhere in memory."""
        raise NotImplementedError

    cdef int sample(self, double* row, double* signs) except -1:
        """Fills a row of the statistics, which is zero, and four figures beside it that say that
        something else changed; the first is the number of consumers."""
        raise NotImplementedError

    cdef bint is_deleted(self) noexcept:
        return self.deleted

    # -- what it held ------------------------------------------------------------------------------

    cdef void held(self, uint64_t* messages, uint64_t* size) noexcept:
        """The messages it holds now, ready and unacknowledged, and the bytes of their bodies."""
        messages[0] = size[0] = 0

    cdef void note_held(self, int64_t now) noexcept:
        """Called before what the queue holds changes, the first time in a millisecond: until now it
        held what it does. And at the beginning of its part of a turn, at a get and at a purge,
        before it can get less."""
        cdef uint64_t messages = 0
        cdef uint64_t size = 0
        self.held(&messages, &size)
        self.backlog.note(messages, size, now)

    def take_most(self) -> int:
        """The most messages it held since the last call of this, ready and unacknowledged."""
        cdef uint64_t messages = 0
        cdef uint64_t size = 0
        self.held(&messages, &size)
        return self.backlog.take_most(messages)

    cdef int use(self, int64_t now, uint64_t* row) except -1:
        """Fills a row of the usage feed, which is zero, with what every type of queue has."""
        self.note_held(now)
        self.counts.use(row)
        row[USE_MESSAGES_MS] = self.backlog.messages_ms
        row[USE_MESSAGE_BYTES_MS] = self.backlog.message_bytes_ms
        return 0

    cdef int64_t now(self) noexcept:
        """When the turn at hand began, or the chunk that came since; ms of our clock."""
        return clock.now_ms if clock.now_ms > self.turn.began_ms else self.turn.began_ms

    cdef int note_latency(self, int64_t published_at, uint32_t count) except -1:
        """Counts first deliveries of messages that were published at the same moment."""
        if not self.is_timed:
            return 0
        if self.latencies is None:
            self.latencies = Latencies()
        self.latencies.add(self.now() - published_at, count)
        return 0

    cdef int64_t oldest(self) except -2:
        """When the oldest ready message was published, ms since 1970; -1 if there is none, or if it
        is not known without waiting for the disk."""
        return -1

    @property
    def arguments(self):
        return self._arguments or {}

    # -- what some types of queue do not do --------------------------------------------------------

    refusals = property(lambda self: None)
    refused = property(lambda self: 0)

    def deaths(self) -> dict:
        """By RabbitMQ's word for the reason: how many messages were discarded because there is no
        dead-letter exchange, and how many were published to one."""
        return {}

    # -- figures that some types of queue cannot give: None ----------------------------------------

    messages_persistent = property(lambda self: None)
    messages_ram = property(lambda self: None)
    messages_ready_ram = property(lambda self: None)
    messages_unacknowledged_ram = property(lambda self: None)
    messages_paged_out = property(lambda self: None)
    message_bytes_ram = property(lambda self: None)
    message_bytes_paged_out = property(lambda self: None)
    consumer_capacity = property(lambda self: None)
    head_message_timestamp = property(lambda self: None)
    memory = property(lambda self: None)

    # -- the policies it is under; None of no policy -----------------------------------------------

    @property
    def policy_name(self):
        return self.policy.name if self.policy is not None else None

    @property
    def operator_policy_name(self):
        return self.policy.operator_name if self.policy is not None else None

    @property
    def policy_definition(self):
        """What they set together."""
        return self.policy.definition if self.policy is not None else None
