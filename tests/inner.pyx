# cython: language_level=3
"""Compiled functions that tests call and no Python of the product does."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.client.unconfirmed cimport Unconfirmed
from broker.fields.tables cimport check_table as check_fields
from broker.kernel.contracts cimport Confirmer
from broker.kernel.message cimport Message
from broker.kernel.streaming_copy cimport streaming_copy
from broker.queues.latencies cimport LATENCY_BUCKETS, Latencies
from broker.queues.stream_filter cimport StreamFilter
from broker.store.bodies.store cimport BodyStore
from broker.store.commit cimport persister as persisting
from broker.store.commit.persister cimport Persister
from broker.store.files.body_record cimport BodyHead, body_check
from broker.store.files cimport space_ahead
from broker.store.index.body_census cimport ReferenceCounter
from broker.store.streams.store cimport StreamStore
from broker.wire.channel cimport Channel
from broker.wire.deliveries cimport Deliveries, SETTLE_REQUEUE

import struct

from broker.store.bodies.body_index import ENTRY


def check_table(bytes fields not None) -> None:
    """Raises Malformed where these are no fields of a table, as sent without their length."""
    check_fields(<const uint8_t*> <char*> fields, <uint32_t> len(fields))


def body_record(bytes id, bytes body, uint64_t incarnation) -> bytes:
    """The record of a shared body."""
    data = bytearray(struct.pack("<II", len(body), 0) + id + body)
    cdef BodyHead* head = <BodyHead*> <char*> data
    head.check = body_check(head, incarnation)
    return bytes(data)


def body_entries(BodyStore bodies) -> list:
    """(id, packed location) of every shared body that is written."""
    return list(bodies.located.index.fold())


def body_references(BodyStore bodies) -> dict:
    """Id -> references of every shared body that is written."""
    return {id: ENTRY.unpack(location)[3] for id, location in body_entries(bodies)}


def count_reference(ReferenceCounter counter, bytes id not None) -> bool:
    """Counts one reference more to a body; whether there is such a body."""
    return counter.count_reference(<const uint8_t*> <char*> id) != 0


def publish(Unconfirmed unconfirmed) -> int:
    """Notes a publish; its sequence number."""
    return unconfirmed.publish()


def settle(Unconfirmed unconfirmed, uint64_t tag, bint multiple, bint ack) -> None:
    """As basic.ack or basic.nack of the server."""
    unconfirmed.settle(tag, multiple, ack)


def latency_bucket(int64_t ms) -> int:
    """The bucket that a latency is counted in."""
    cdef int bucket
    cdef Latencies latencies = Latencies()
    latencies.add(ms, 1)
    return [latencies.buckets[bucket] for bucket in range(LATENCY_BUCKETS)].index(1)


def takes(StreamFilter wanted, bytes properties) -> bool:
    """Whether a filter takes a message with these properties."""
    cdef Message message
    message.properties = <const uint8_t*> <char*> properties
    message.properties_length = <uint32_t> len(properties)
    return wanted.takes(&message)


def keep_place(StreamStore store, str tag, uint64_t offset) -> None:
    """The consumer with this tag is done with everything up to the offset."""
    store.keep_offset(store.offsets.track(tag.encode("utf-8", "surrogateescape")), offset)


def requeue_all(Channel channel) -> None:
    """Puts every unacknowledged delivery back."""
    cdef Deliveries deliveries = channel.deliveries
    deliveries.settle_up_to(deliveries.ledger.next - 1, SETTLE_REQUEUE)


def space_ahead_after(uint32_t rounds, int64_t ns) -> tuple:
    """Sets after how many small rounds in what time a segment gets space ahead. Returns what was
    set before."""
    before = (space_ahead.rounds_before, space_ahead.within_ns)
    space_ahead.rounds_before = rounds
    space_ahead.within_ns = ns
    return before


def copied_past_caches(bytes data not None, size_t offset) -> bytes:
    """A copy of the data, `offset` bytes behind the start of a line of the caches, with the byte
    before and the one behind it."""
    cdef size_t length = len(data)
    memory = bytearray(b"\x7f") * (length + offset + 130)
    cdef uint8_t* place = <uint8_t*> <char*> memory
    cdef size_t start = 64 + offset - <size_t> place % 64
    streaming_copy(place + start, <const uint8_t*> <const char*> data, length)
    return bytes(memory[start - 1 : start + length + 1])


def acks_every(uint64_t ns) -> int:
    """Sets how much time is between two rounds with acks. Returns what was set before."""
    before = persisting.acks_every_ns
    persisting.acks_every_ns = ns
    return before


def ask_for_sync(Persister persister) -> None:
    """As a confirm does: a synced round begins at the end of this turn."""
    persister.sync_asked = True
    persister.press()


cdef class Publisher(Confirmer):
    """Counts the rounds that confirmed something to it."""

    cdef readonly int confirmed

    def want_confirm(self, Persister persister) -> None:
        persister.want_confirm(self)

    cdef int confirm(self) except -1:
        self.confirmed += 1
        return 0

    cdef int write_confirm(self) except -1:
        return 0


def ask_for_write(Persister persister) -> None:
    """As a full tail does: the same without a sync."""
    persister.press()
