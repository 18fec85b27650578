# cython: language_level=3
"""A queue's consumers, and which is the next: the highest priority first, among equals the one that
waited longest."""

from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport Consumer
from broker.queues.capacity cimport Capacity


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


cdef class Consumers:
    """`all` is None while there is none. Iterating also gives those that are `expected`; it goes
    over a copy."""

    def __len__(self):
        return self.count()

    cdef Py_ssize_t count(self) noexcept:
        return (len(self.all) if self.all is not None else 0) + (
            len(self.expected) if self.expected is not None else 0)

    def __iter__(self):
        return iter((self.all or []) + (self.expected or []))

    # -- the next one ------------------------------------------------------------------------------

    cdef Consumer next(self):
        """The next consumer: the highest priority with room, and among equals the one that waited
        longest. There is one in `all`."""
        cdef list consumers = self.all
        cdef Py_ssize_t count = len(consumers)
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t end, at, _each
        cdef Consumer consumer, first
        if count == 1 or self.single_active:
            # A single active consumer is the one that came first (`add`).
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

    cdef bint have_room(self) noexcept:
        """Whether a consumer could take a message now; does not change their order. There is one in
        `all`."""
        cdef Consumer consumer
        for consumer in self.all:
            if consumer.channel.can_take(consumer):
                return True
            if self.single_active:
                break
        return False

    cdef bint could_take(self) noexcept:
        """The same for consumers of priority 0 or higher, as those of other brokers' federation
        links have a lower one."""
        cdef Consumer consumer
        for consumer in self.all:
            if consumer.priority < 0:
                return False
            if consumer.channel.can_take(consumer):
                return True
            if self.single_active:
                return False
        return False

    cdef uint64_t room(self) noexcept:
        """How many messages they may have unacknowledged, about: as if all had the prefetch of the
        first; 0 is any number."""
        return <uint64_t> (<Consumer> self.all[0]).prefetch_count * len(self.all)

    # -- capacity ----------------------------------------------------------------------------------

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

    cdef double capacity_share(self, bint is_empty) noexcept:
        """The share of the time, lately, that one could take a message at once, from 0 to 1.
        `is_empty`: no message is ready."""
        if self.capacity is None:
            return 1.0
        clock.refresh()
        if self.capacity.blocked_at and is_empty and self.have_room():
            # No message came that would have found it out.
            self.capacity.unblock()
        return self.capacity.share()

    # -- coming and going --------------------------------------------------------------------------

    cdef Consumer active(self):
        """The one consumer that is served; None if all are, or if there is none."""
        if self.all is None or not self.single_active:
            return None
        return <Consumer> self.all[0]

    cdef str exclusive_tag(self):
        """The tag of the exclusive consumer. It is the only one: neither it nor another is accepted
        beside the other."""
        cdef Consumer consumer
        if self.count() != 1:
            return None
        consumer = (self.all or self.expected)[0]
        return consumer.tag if consumer.exclusive else None

    cdef int expect(self, Consumer consumer) except -1:
        """One is accepted: it counts from now on, and gets messages once it is added."""
        if self.expected is None:
            self.expected = []
        self.expected.append(consumer)
        return 0

    cdef int add(self, Consumer consumer, uint64_t ready) except -1:
        """Adds one behind those of its priority; `ready` messages wait for it."""
        self.stop_expecting(consumer)
        if self.all is None:
            self.all = []
        if self.single_active:
            self.all.append(consumer)
        else:
            self.all.insert(behind(self.all, consumer.priority), consumer)
        self.is_joined = True
        self.ready_joined = ready
        return 0

    cdef bint remove(self, Consumer consumer) except -1:
        """Takes one away. False if it is not there."""
        cdef Py_ssize_t at
        if not self.stop_expecting(consumer):
            at = place_of(self.all, consumer)
            if at < 0:
                return False
            self.hand_turn_on(at)
            del self.all[at]
        if not self.all:
            self.all = self.capacity = None
        return True

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
        cdef Consumer leaving = <Consumer> self.all[at]
        cdef Consumer first
        cdef Py_ssize_t start = 0
        cdef uint32_t turn
        if not self.single_active and leaving.priority < INT64_MAX:
            start = behind(self.all, leaving.priority + 1)
        first = <Consumer> self.all[start]
        turn = first.next_turn
        if turn > <uint32_t> (at - start):
            turn -= 1
        if first is leaving and at + 1 < len(self.all):
            first = <Consumer> self.all[at + 1]
            if first.priority != leaving.priority:
                return 0
        first.next_turn = turn
        return 0

    cdef void clear(self) noexcept:
        """The queue is deleted."""
        self.all = self.expected = None
