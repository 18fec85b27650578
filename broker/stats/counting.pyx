# cython: language_level=3
"""What many queues or channels have counted together, added up in C."""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from broker.queues.classic cimport ClassicQueue
from broker.queues.counters cimport READY
from broker.queues.dead_letters cimport DeathCounters, REASON_COUNT
from broker.queues.declared cimport DeclaredQueue
from broker.stats.gauge cimport SIGNS, WIDTH_MAX
from broker.wire.channel cimport Channel

from broker.queues.dying import reason_name
from broker.stats.gauges import QUEUE_COUNTERS

if READY != len(QUEUE_COUNTERS):
    raise ImportError("broker.stats.counting does not add up what QUEUE_COUNTERS lists")


cdef class QueueCounts:
    """Sums over queues of one type, under the names of `broker.stats.ended.counts_of`."""

    cdef uint64_t counters[WIDTH_MAX]
    cdef uint64_t refused
    cdef uint64_t[REASON_COUNT] given_up
    cdef uint64_t[REASON_COUNT] lettered
    cdef bint has_deaths                 # queues of this type count them

    cdef int add(self, DeclaredQueue queue) except -1:
        cdef double row[WIDTH_MAX]
        cdef double signs[SIGNS]
        cdef ClassicQueue classic
        cdef DeathCounters deaths
        cdef int place
        memset(row, 0, sizeof(row))
        queue.sample(row, signs)
        for place in range(READY):
            self.counters[place] += <uint64_t> row[place]
        if not isinstance(queue, ClassicQueue):
            return 0
        classic = <ClassicQueue> queue
        self.has_deaths = True
        if classic.refusals is not None:
            self.refused += classic.refusals.total
        if classic.dead_letters is not None and classic.dead_letters.deaths is not None:
            deaths = classic.dead_letters.deaths
            for place in range(REASON_COUNT):
                self.given_up[place] += deaths.given_up[place]
                self.lettered[place] += deaths.lettered[place]
        return 0

    def counts(self) -> dict:
        """By name, the sum."""
        cdef int place
        found = {}
        for place, name in enumerate(QUEUE_COUNTERS):
            found[name] = self.counters[place]
        found["refused"] = self.refused
        if self.has_deaths:
            for place in range(REASON_COUNT):
                for way, value in (("given_up", self.given_up[place]),
                                   ("lettered", self.lettered[place])):
                    found[f"{way}.{reason_name(place)}"] = value
        return found


def count_queues(list queues, Py_ssize_t start, Py_ssize_t stop, dict sums) -> None:
    """Adds `queues[start:stop]` to `sums`, which has one `QueueCounts` for each type."""
    cdef Py_ssize_t place
    cdef QueueCounts counts = None
    cdef object kind = None
    for place in range(start, min(stop, len(queues))):
        queue = queues[place]
        if queue.type != kind:
            kind = queue.type
            counts = sums.get(kind)
            if counts is None:
                counts = sums[kind] = QueueCounts()
        counts.add(queue)


cdef class ChannelCounts:
    """Sums over channels: publishes that were nacked, channels that have published, and what waits
    for a confirm, an ack or a commit."""

    cdef readonly uint64_t refused
    cdef readonly uint64_t publishers
    cdef readonly uint64_t unconfirmed
    cdef readonly uint64_t unacknowledged
    cdef readonly uint64_t uncommitted
    cdef readonly uint64_t acks_uncommitted

    def add(self, list channels, Py_ssize_t start, Py_ssize_t stop) -> None:
        """Adds `channels[start:stop]`."""
        cdef Py_ssize_t place
        cdef Channel channel
        for place in range(start, min(stop, len(channels))):
            channel = channels[place]
            self.publishers += channel.published > 0
            self.unacknowledged += channel.deliveries.ledger.count
            if channel.confirms is not None:
                self.refused += channel.confirms.nacked
                self.unconfirmed += <uint64_t> channel.confirms.unconfirmed
            if channel.transaction is not None:
                self.uncommitted += <uint64_t> channel.messages_uncommitted
                self.acks_uncommitted += <uint64_t> channel.acks_uncommitted
