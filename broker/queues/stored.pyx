# cython: language_level=3
"""A queue's messages: the store behind it, which is there only while there is something in it, and
what can be counted."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.turn cimport Turn
from broker.queues.declared cimport (
    DeclaredQueue, USE_ACK, USE_ACK_BYTES, USE_DELIVER, USE_DELIVER_BYTES, USE_DELIVER_NO_ACK,
    USE_DELIVER_NO_ACK_BYTES, USE_GET, USE_GET_BYTES, USE_GET_EMPTY, USE_GET_NO_ACK,
    USE_GET_NO_ACK_BYTES, USE_REDELIVER, USE_REDELIVER_BYTES, USE_REJECT, USE_REJECT_BYTES,
)
from broker.queues.latencies cimport Latencies
from broker.queues.limits cimport HAS_EXPIRY, Limits
from broker.settings.bounds import DEFAULTS
from broker.store.commit.persister cimport Persister
from broker.store.log.figures cimport Head, in_memory, memory_of, size_of
from broker.store.log.priority_store cimport PriorityStore
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.recovery import recover


cdef object among_resident(StoredQueue queue, uint64_t figure):
    """The part of a figure that is in memory, if all records or no record are in memory; otherwise
    None."""
    resident = in_memory(queue.store)
    if resident == 0:
        return 0
    return figure if resident == queue.store.total + queue.lean_unacked else None


cdef class StoredQueue(DeclaredQueue):
    """`parent` is the directory of the vhost's queues."""

    def __init__(self, Turn turn, Persister persister, str parent, str vhost_name, str name,
                 uint64_t incarnation, *, bint durable=False, bint exclusive=False,
                 bint auto_delete=False, arguments=None, owner=None, bounds=DEFAULTS):
        DeclaredQueue.__init__(
            self, vhost_name, name, incarnation, durable=durable, exclusive=exclusive,
            auto_delete=auto_delete, arguments=arguments, owner=owner, bounds=bounds)
        self.turn = turn
        self.persister = persister
        self.parent = parent
        self.shares = True
        if arguments:
            self.limits = Limits(arguments)
            self.features = self.limits.features()

    # -- what others see ---------------------------------------------------------------------------

    @property
    def messages_ready(self):
        return self.store.ready if self.store is not None else 0

    @property
    def messages_unacknowledged(self):
        if self.store is None:
            return self.lean_unacked
        return self.store.total - self.store.ready + self.lean_unacked

    @property
    def message_bytes_ready(self):
        return self.store.ready_bytes if self.store is not None else 0

    @property
    def message_bytes_unacknowledged(self):
        return self.store.total_bytes - self.store.ready_bytes if self.store is not None else 0

    @property
    def messages(self):
        """Ready and unacknowledged."""
        return (self.store.total if self.store is not None else 0) + self.lean_unacked

    @property
    def message_bytes(self):
        return self.store.total_bytes if self.store is not None else 0

    cdef int persistence(self) except -2:
        """Whether all stored messages are persistent, 1, or none of them, 0; -1 if there are both,
        or if it is not known. A transient queue holds no persistent messages."""
        if self.store is None or self.store.total == 0:
            self.stored_from = self.published
            self.transient_from = self.transient
            self.recovered = False
            return 0
        if not self.durable:
            return 0
        if self.recovered:
            return -1
        if self.transient == self.transient_from:
            return 1
        if self.published - self.stored_from == self.transient - self.transient_from:
            return 0
        return -1

    @property
    def messages_persistent(self):
        """None where persistent and transient messages are mixed: their numbers are not known."""
        cdef int all_are = self.persistence()
        return None if all_are < 0 else self.store.total if all_are else 0

    @property
    def message_bytes_persistent(self):
        """The same in bytes of their bodies."""
        cdef int all_are = self.persistence()
        return None if all_are < 0 else self.store.total_bytes if all_are else 0

    @property
    def messages_ram(self):
        """Messages whose records are in memory; None if it is not known."""
        return in_memory(self.store) if self.store is not None else 0

    @property
    def messages_ready_ram(self):
        """The ready ones of them."""
        return among_resident(self, self.store.ready) if self.store is not None else 0

    @property
    def messages_unacknowledged_ram(self):
        """The unacknowledged ones of them."""
        if self.store is None:
            return 0
        return among_resident(self, self.store.total - self.store.ready + self.lean_unacked)

    @property
    def message_bytes_ram(self):
        """The bytes of their bodies."""
        return among_resident(self, self.store.total_bytes) if self.store is not None else 0

    @property
    def messages_paged_out(self):
        """Messages whose records are on disk only; None if it is not known."""
        resident = in_memory(self.store) if self.store is not None else 0
        return None if resident is None else self.messages - resident

    @property
    def message_bytes_paged_out(self):
        """The bytes of their bodies."""
        resident = self.message_bytes_ram
        return None if resident is None else self.message_bytes - resident

    @property
    def memory(self):
        """Bytes of memory of the queue with what it holds of its messages."""
        cdef uint64_t size = size_of(self)
        return size + memory_of(self.store) if self.store is not None else size

    @property
    def head_message_timestamp(self):
        """The property of the next message to deliver, seconds since 1970; None if it has none, or
        if it cannot be had without waiting for the disk."""
        if self.store is None:
            return None
        if self.head is None:
            self.head = Head()
        return self.head.timestamp_of(self.store)

    @property
    def segments(self):
        return self.store.segments if self.store is not None else 0

    @property
    def disk_bytes(self):
        return self.store.disk_bytes if self.store is not None else 0

    @property
    def disk_bytes_live(self):
        return self.store.disk_bytes_live if self.store is not None else 0

    def counters(self) -> dict:
        """Cumulative counts since the queue was declared or recovered, under RabbitMQ's names."""
        return {
            "publish": self.published,
            "confirm": self.confirmed,
            "deliver": self.delivered,
            "deliver_no_ack": self.delivered_no_ack,
            "get": self.got,
            "get_no_ack": self.got_no_ack,
            "get_empty": self.got_empty,
            "ack": self.acked,
            "redeliver": self.redelivered,
            "reject": self.rejected,
        }

    cdef void held(self, uint64_t* messages, uint64_t* size) noexcept:
        messages[0] = self.lean_unacked
        if self.store is not None:
            messages[0] += self.store.total
            size[0] = self.store.total_bytes

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
        if self.store is None or self.store.ready == 0:
            return -1
        if self.head is None:
            self.head = Head()
        return self.head.oldest_of(self.store)

    cdef int use(self, int64_t now, uint64_t* row) except -1:
        DeclaredQueue.use(self, now, row)
        row[USE_DELIVER] = self.delivered
        row[USE_DELIVER_NO_ACK] = self.delivered_no_ack
        row[USE_DELIVER_NO_ACK_BYTES] = self.no_ack_bytes
        row[USE_GET] = self.got
        row[USE_GET_BYTES] = self.got_bytes
        row[USE_GET_NO_ACK] = self.got_no_ack
        row[USE_GET_NO_ACK_BYTES] = self.got_no_ack_bytes
        row[USE_DELIVER_BYTES] = (
            self.bytes_out - self.no_ack_bytes - self.got_bytes - self.got_no_ack_bytes)
        row[USE_GET_EMPTY] = self.got_empty
        row[USE_REDELIVER] = self.redelivered
        row[USE_REDELIVER_BYTES] = self.redelivered_bytes
        row[USE_ACK] = self.acked
        row[USE_ACK_BYTES] = self.acked_bytes
        row[USE_REJECT] = self.rejected
        row[USE_REJECT_BYTES] = self.rejected_bytes
        return 0

    # -- its time in the turn ----------------------------------------------------------------------

    cdef int touch(self) except -1:
        if not self.pending and self.store is not None and self.store.ready:
            self.turn.touch_queue(self)
        return 0

    cpdef int deliver_pending(self) except -1:
        return self.turn.deliver_first(self)

    def wake(self):
        """Something that delivery waited for is there."""
        if not self.pending:
            self.turn.touch_queue(self)

    # -- the store ---------------------------------------------------------------------------------

    def open_store(self):
        if self.limits is not None and self.limits.max_priority > 0:
            self.store = PriorityStore(
                self.persister, self.parent, self.incarnation, self.durable, self.wake,
                <uint32_t> self.limits.max_priority, self.bodies)
        else:
            self.store = QueueStore(
                self.persister, self.parent, self.incarnation, self.durable, self.wake,
                self.bodies)
        self.had_store = True
        # A number is never used twice, not even when the store was given back meanwhile.
        self.store.go_on_from(self.next_segment)
        return self.store

    def recover(self) -> list:
        """Finds the messages of the last run again. Returns what was wrong."""
        problems = recover(self.open_store())
        clock.refresh()
        self.held_at = clock.now_ms
        self.recovered = True
        if self.store.any_expires:
            self.features |= HAS_EXPIRY
        if self.store.total == 0:
            self.next_segment = self.store.unused_number()
            self.store = None
        return problems

    def delete_store(self) -> None:
        """The queue is deleted, with its messages and its directory. An idle queue without a store
        may still have the directory."""
        if self.store is None and self.had_store:
            self.open_store()
            self.store.directory_made = True
        if self.store is not None:
            self.store.delete()

    def close(self) -> None:
        """Clean stop. A queue that does not survive gives back what it refers to."""
        if self.store is not None and not self.deleted:
            if self.durable:
                self.store.close()
            else:
                self.store.delete()

    def rest_if_idle(self, double now, double after) -> None:
        """Called from time to time: a queue without traffic for `after` seconds frees the memory
        that it does not need."""
        cdef uint64_t moved = (self.published + self.acked + self.delivered_no_ack
                               + self.got_no_ack + self.rejected)
        if moved != self.moved:
            self.moved = moved
            self.idle_since = now
        elif self.store is not None and not self.deleted and now - self.idle_since >= after:
            self.store.rest()
            if (type(self.store) is QueueStore and self.store.total == 0
                    and self.store.has_no_files()):
                self.next_segment = self.store.unused_number()
                self.store = None
