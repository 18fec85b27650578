# cython: language_level=3
"""A queue's consumers, and which is the next: the highest priority first, among equals the one that
waited longest."""

from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport INT64_MAX, int64_t, uint32_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport Consumer
from broker.queues.capacity cimport Capacity
from broker.queues.limits cimport PAUSED, SINGLE_ACTIVE
from broker.queues.stored cimport StoredQueue


cdef Py_ssize_t behind(list consumers, int64_t priority) except -1:
    """How many have this priority or a higher one; they are in order."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = len(consumers)
    cdef Py_ssize_t middle
    if high and (<Consumer> consumers[high - 1]).priority >= priority:
        return high
    while low < high:
        middle = (low + high) // 2
        if (<Consumer> consumers[middle]).priority >= priority:
            low = middle + 1
        else:
            high = middle
    return low


cdef Py_ssize_t place_of(list consumers, Consumer consumer) except -2:
    """Its index, -1 if it is not there. It compares pointers only: 20,000 take some 10 us."""
    cdef Py_ssize_t at
    if consumers is not None:
        for at in range(len(consumers)):
            if <void*> PyList_GET_ITEM(consumers, at) is <void*> consumer:
                return at
    return -1


cdef class ConsumedQueue(StoredQueue):
    """With consumers, served while it is not paused."""

    # -- what others see ---------------------------------------------------------------------------

    @property
    def consumers(self):
        return (self._consumers or []) + (self.expected or [])

    @property
    def consumer_count(self):
        return len(self._consumers or ()) + len(self.expected or ())

    @property
    def exclusive_consumer_tag(self):
        # It is the only one: neither it nor another is accepted beside the other.
        if self.consumer_count == 1:
            consumer = (self._consumers or self.expected)[0]
            return consumer.tag if consumer.exclusive else None
        return None

    @property
    def single_active_consumer(self):
        """The one consumer that is served; None if all are, or if there is none."""
        if self._consumers is None or not self.features & SINGLE_ACTIVE:
            return None
        return self._consumers[0]

    @property
    def single_active_consumer_tag(self):
        active = self.single_active_consumer
        return active.tag if active is not None else None

    @property
    def consumer_capacity(self):
        """The share of the time, lately, that a consumer could take a message at once, from 0 to 1;
        0 without consumers or while paused."""
        if not self.is_served():
            return 0
        if self.capacity is None:
            return 1.0
        clock.refresh()
        if self.capacity.blocked_at and not self.messages_ready and self.has_room():
            # No message came that would have found it out.
            self.capacity.unblock()
        return self.capacity.share()

    @property
    def could_take(self):
        """Whether a consumer could take a message now: one of priority 0 or higher, as those of
        other brokers' federation links have a lower one."""
        cdef Consumer consumer
        if not self.is_served():
            return False
        for consumer in self._consumers:
            if consumer.priority < 0:
                return False
            if consumer.channel.can_take(consumer):
                return True
            if self.features & SINGLE_ACTIVE:
                return False
        return False

    cdef bint has_room(self) noexcept:
        """Whether a consumer could take a message now; does not change the order of consumers."""
        cdef Consumer consumer
        for consumer in self._consumers:
            if consumer.channel.can_take(consumer):
                return True
            if self.features & SINGLE_ACTIVE:
                break
        return False

    cdef uint64_t consumers_room(self) noexcept:
        """How many messages its consumers may have unacknowledged, about: as if all had the
        prefetch of the first; 0 is any number."""
        return <uint64_t> (<Consumer> self._consumers[0]).prefetch_count * len(self._consumers)

    cdef int note_turn(self, uint32_t count) except -1:
        """At the end of the queue's time in the turn: how many messages it delivered."""
        self.turn.delivered += count
        if count and self.store.ready and self._consumers is not None:
            self.turn.reading.delivered(count, self.consumers_room())
        return 0

    cdef int note_capacity(self, bint served, bint blocked) except -1:
        """At the end of the queue's time in the turn: whether a consumer took a message, and
        whether the next one found none with room."""
        if served and self.capacity is not None:
            self.capacity.unblock()
        if blocked:
            if self.capacity is None:
                self.capacity = Capacity()
            self.capacity.block()
        return 0

    # -- pausing -----------------------------------------------------------------------------------

    @property
    def state(self):
        return "paused" if self.features & PAUSED else "running"

    @property
    def paused(self):
        return bool(self.features & PAUSED)

    def pause(self) -> None:
        """Stops all deliveries, to consumers and to basic.get; publishes are still accepted."""
        self.deliver_pending()
        self.features |= PAUSED

    def resume(self) -> None:
        """Resumes deliveries."""
        self.features &= ~PAUSED
        self.touch()

    # -- the next consumer -------------------------------------------------------------------------

    cdef bint serve_consumers(self) except -1:
        """Delivers what consumers can take. Whether there is more than one turn may deliver."""
        raise NotImplementedError

    cdef bint is_served(self) noexcept:
        """Whether a message could go to a consumer at all."""
        return self._consumers is not None and not self.features & PAUSED

    cdef Consumer next_consumer(self):
        """The next consumer: the highest priority with room, and among equals the one that waited
        longest."""
        cdef list consumers = self._consumers
        cdef Py_ssize_t count = len(consumers)
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t end, at, _each
        cdef Consumer consumer, first
        if count == 1 or self.features & SINGLE_ACTIVE:
            # A single active consumer is the one that came first (`add_consumer`).
            consumer = <Consumer> consumers[0]
            return consumer if consumer.channel.can_take(consumer) else None
        while start < count:
            first = <Consumer> consumers[start]
            end = behind(consumers, first.priority)
            at = start + first.next_turn
            if at >= end:
                at = start
            for _each in range(end - start):
                consumer = <Consumer> consumers[at]
                at += 1
                if at == end:
                    at = start
                if consumer.channel.can_take(consumer):
                    first.next_turn = <uint32_t> (at - start)
                    return consumer
            start = end
        return None

    # -- coming and going --------------------------------------------------------------------------

    def open_store(self):
        StoredQueue.open_store(self)
        # Written records stay in memory for consumers that are about to read them.
        self.store.keep = self._consumers is not None
        return self.store

    def expect_consumer(self, Consumer consumer) -> None:
        """A consumer is accepted: it counts from now on, and gets messages once it is added."""
        if self.expected is None:
            self.expected = []
        self.expected.append(consumer)

    def add_consumer(self, Consumer consumer) -> None:
        """Adds a consumer behind those of its priority. Raising conflicts is the channel's business
        (`exclusive_consumer_tag`)."""
        # What came before it belongs to those that were there. Consumers that come together share
        # the backlog that all of them found.
        if self.pending and not (self.is_joined and self.messages_ready == self.ready_joined):
            self.deliver_pending()
        self.stop_expecting(consumer)
        if self._consumers is None:
            self._consumers = []
        if self.features & SINGLE_ACTIVE:
            self._consumers.append(consumer)
        else:
            self._consumers.insert(behind(self._consumers, consumer.priority), consumer)
        if self.store is not None:
            self.store.keep = True
        self.is_joined = True
        self.ready_joined = self.messages_ready
        self.wake()

    def remove_consumer(self, Consumer consumer) -> None:
        """Takes a consumer away; the last one of an auto-delete queue takes the queue with it."""
        cdef Py_ssize_t at
        consumer.stop()
        if not self.stop_expecting(consumer):
            at = place_of(self._consumers, consumer)
            if at < 0:
                return
            self.hand_turn_on(at)
            del self._consumers[at]
        if self._consumers:
            # The next one may be the active one now.
            self.wake()
        else:
            self._consumers = self.capacity = None
            self.used_at = clock.now_ms
            if self.store is not None:
                self.store.keep = False
            if (self.expected is None and self.auto_delete and not self.deleted
                    and self.unused is not None):
                self.unused(self)

    cdef bint stop_expecting(self, Consumer consumer) except -1:
        """Whether the consumer was expected; those that were first come first."""
        cdef Py_ssize_t at = place_of(self.expected, consumer)
        if at < 0:
            return False
        del self.expected[at]
        if not self.expected:
            self.expected = None
        return True

    cdef int hand_turn_on(self, Py_ssize_t at) except -1:
        """Before the consumer at an index is removed: the order of its equals does not change."""
        cdef Consumer leaving = <Consumer> self._consumers[at]
        cdef Consumer first
        cdef Py_ssize_t start = 0
        cdef uint32_t turn
        if not self.features & SINGLE_ACTIVE and leaving.priority < INT64_MAX:
            start = behind(self._consumers, leaving.priority + 1)
        first = <Consumer> self._consumers[start]
        turn = first.next_turn
        if turn > <uint32_t> (at - start):
            turn -= 1
        if first is leaving and at + 1 < len(self._consumers):
            first = <Consumer> self._consumers[at + 1]
            if first.priority != leaving.priority:
                return 0
        first.next_turn = turn
        return 0
