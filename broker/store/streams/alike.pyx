# cython: language_level=3
"""Appends a run of records to a stream's log: what is looked at for one is looked at once."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.buffer cimport load16, store16, store64
from broker.kernel.message cimport Message, PERSISTENT
from broker.store.commit.tail_memory cimport TAIL_FULL
from broker.store.files.record cimport (
    OFFSET_BYTES, RECORD_FIXED, SHARED_WITHIN, SHARES, SHARING_BYTES, record_bytes,
    record_put_behind,
)
from broker.store.log.segments cimport Block, Segment
from broker.store.streams.store cimport SharedHeaders, StreamStore

cdef enum:
    FLAGS_BYTES = 2              # of properties
    HEADERS_FLAG = 1 << 13
    FRONT = OFFSET_BYTES + SHARING_BYTES + FLAGS_BYTES


cdef bint append_alike(StreamStore store, const Message* messages, uint32_t count,
                       SharedHeaders* shared, const uint8_t* table, uint32_t table_length,
                       bint with_body) except -1:
    """As `StreamStore.append_sharing`, for messages of one name and one time without headers, whose
    shared headers `refer` has found. Each gets this table, of `TABLE_MOST` bytes at most, as the
    first of its properties. False: they have no room behind each other, or the last one would stand
    too far from what it shares, and none is stored."""
    cdef Segment* segment = store.segments.active
    cdef Block* tail = store.segments.tail
    cdef Message record = messages[0]
    cdef uint8_t front[FRONT + TABLE_MOST]
    cdef uint32_t front_length = FRONT + table_length
    cdef uint32_t fixed = (RECORD_FIXED + record.exchange_length + record.routing_key_length
                           + front_length - FLAGS_BYTES)
    cdef uint32_t length = 0
    cdef uint32_t i
    cdef uint64_t body_bytes = 0
    cdef uint64_t total = 0
    for i in range(count):
        total += fixed + messages[i].properties_length
        if with_body:
            body_bytes += messages[i].body_length
    total += body_bytes
    if (tail == NULL or tail.length >= TAIL_FULL or tail.length + total > tail.capacity
            or shared.back + total > SHARED_WITHIN
            or segment.length + total > (
                store.own_segment_size or store.persister.segment_size)):
        return False
    record.timestamp = store.last_timestamp = max(record.timestamp, store.last_timestamp)
    record.body_length = 0
    store16(front + OFFSET_BYTES + 2, shared.length)
    memcpy(front + FRONT, table, table_length)
    for i in range(count):
        store64(front, store.next_offset + i)
        store16(front + OFFSET_BYTES, <uint16_t> (shared.back + length))
        store16(front + OFFSET_BYTES + SHARING_BYTES, load16(messages[i].properties) | HEADERS_FLAG)
        record.flags = messages[i].flags & PERSISTENT | SHARES
        record.properties = messages[i].properties + FLAGS_BYTES
        record.properties_length = messages[i].properties_length - FLAGS_BYTES
        if with_body:
            record.body = messages[i].body
            record.body_length = messages[i].body_length
        record_put_behind(tail.data + tail.length + length, &record, front, front_length)
        length += record_bytes(&record) + front_length
        if store.note_message != NULL:
            store.note_message(
                store.newest, messages[i].properties, messages[i].properties_length)
    store.newest.add(
        store.next_offset, record.timestamp, segment.length, length, body_bytes, count)
    store.next_offset += count
    store.total += count
    store.total_bytes += body_bytes
    tail.length += length
    tail.count += count
    segment.length += length
    segment.count += count
    store.persister.tail_bytes += length
    if not store.dirty:
        store.persister.add(store)
    return True
