# cython: language_level=3
"""Reads the ready messages of a queue's store in the order of their delivery without changing it:
cursors do not move, messages are not marked as delivered, and they are not counted.

Between two calls of `next` in one turn the store does not change. Before the loop continues,
`interrupt` must be called: requeued places are then listed again, and messages that were taken
in between are not shown.
"""

import heapq

from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.message cimport Message, Place, WAS_DELIVERED
from broker.store.files.record cimport HEADER_BYTES, record_bytes
from broker.store.log.contracts cimport EMPTY, FOUND, LEVELS, MessageStore, WAIT
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.requeued cimport Requeued
from broker.store.log.segments cimport Block, Segment

cdef enum:
    LISTED = 128                 # places that came back, listed at a time


cdef class Browse:
    """Goes over the ready messages of one store once."""

    def __init__(self, MessageStore store):
        self.store = store
        self.level = store.next_level(LEVELS)

    cdef int next(self, Message* message, Place* place) except -1:
        """Points at the next message. WAIT: a thread reads it; ask again in a later turn. EMPTY:
        there is no other, or its bytes are damaged."""
        cdef QueueStore part
        cdef int found
        while self.level >= 0:
            part = <QueueStore> self.store.part(self.level)
            if part is not None:
                found = self.next_returned(part, message, place)
                if found == EMPTY:
                    found = self.next_unread(part, message, place)
                if found != EMPTY:
                    return found
            self.level = self.store.next_level(self.level)
            self.last = self.sure = 0
            self.last_length = 0
            self.returned = None
        return EMPTY

    cdef void interrupt(self) noexcept:
        """The store may change before the next call."""
        self.returned = None

    cdef int next_returned(self, QueueStore part, Message* message, Place* place) except -1:
        """The next one that came back; all of them lie before the cursor."""
        cdef uint64_t key
        cdef Segment* segment
        cdef int found
        if self.returned is None:
            self.returned = places_behind(part.requeued, self.last)
        while self.returned:
            key = self.returned[len(self.returned) - 1]
            segment = part.segments.find(<uint32_t> (key >> 32))
            if segment != NULL:
                found = self.show(part, segment, <uint32_t> key, True, message, place)
                if found == WAIT:
                    return WAIT
            else:
                found = EMPTY
            self.returned.pop()
            self.last = key
            if not self.returned:
                self.returned = places_behind(part.requeued, key)
            if found == FOUND:
                return FOUND
        return EMPTY

    cdef int next_unread(self, QueueStore part, Message* message, Place* place) except -1:
        """The next one behind the cursor, and behind what was shown."""
        cdef Segment* segment = part.segments.cursor
        cdef uint32_t position = part.segments.cursor_position
        cdef uint32_t skip = 0
        cdef uint64_t reached
        if segment == NULL:
            return EMPTY
        reached = <uint64_t> segment.number << 32 | position
        if self.drops != part.segments.drops:
            # From there on other records may lie in the places of those that were shown.
            self.drops = part.segments.drops
            self.last, self.last_length = self.sure, 0
        if self.last >= reached:
            while segment != NULL and segment.number != <uint32_t> (self.last >> 32):
                segment = segment.next
            if segment == NULL:
                return EMPTY
            position = <uint32_t> self.last + self.last_length
        while segment != NULL:
            while skip < segment.skip_count and segment.skips[skip].position <= position:
                if segment.skips[skip].position == position:
                    position += segment.skips[skip].length
                skip += 1
            if position < segment.length:
                return self.show(part, segment, position, False, message, place)
            segment = segment.next
            position = HEADER_BYTES
            skip = 0
        return EMPTY

    cdef int show(self, QueueStore part, Segment* segment, uint32_t position, bint returned,
                  Message* message, Place* place) except -1:
        cdef int found
        cdef Block* tail = part.segments.tail
        place.segment = segment.number
        place.position = position
        found = part.read(place, message)
        if found != FOUND:
            return found
        place.body_length = message.body_length
        place.length = record_bytes(message)
        place.redelivered = (returned or position < segment.recovered_watermark
                             or (message.flags & WAS_DELIVERED) != 0)
        self.last = <uint64_t> segment.number << 32 | position
        self.last_length = place.length
        self.sure = self.last + self.last_length
        if tail != NULL and tail.segment == segment and position >= tail.start:
            self.sure = <uint64_t> segment.number << 32 | tail.start
        self.drops = part.segments.drops
        return part.find_body(message)


cdef list places_behind(Requeued requeued, uint64_t last):
    """The oldest places that came back and lie behind `last`, the oldest at the end of the list.
    Only as much of the heap is looked at as is needed."""
    cdef list found = []
    cdef list open_ends = [(requeued.entries[0].key, 0)] if requeued.count else []
    cdef uint32_t at, child
    cdef uint64_t key
    while open_ends and len(found) < LISTED:
        key, at = heapq.heappop(open_ends)
        if key > last and (requeued.gone is None or key not in requeued.gone):
            found.append(key)
        for child in range(2 * at + 1, 2 * at + 3):
            if child < requeued.count:
                heapq.heappush(open_ends, (requeued.entries[child].key, child))
    found.reverse()
    return found
