# cython: language_level=3
"""The references of one queue to shared bodies.

Every living record with a reference counts once in the vhost's body store. Of unread records only
their number in each segment is known; the ids of read ones are kept in `taken` until they are
settled. So unread messages cost no memory here either.
"""

import logging

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.message cimport BODY_IS_REFERENCE, Message, Place
from broker.store.bodies.reader cimport BODY_MISSING, BodyReader
from broker.store.bodies.store cimport BodyStore
from broker.store.bodies.references import references_in
from broker.store.files.operation cimport File
from broker.store.files.record cimport HEADER_BYTES
from broker.store.index.number_table cimport NumberTable, Row
from broker.store.log.segments cimport Block, Segment, Segments

from broker.store.log.segments import not_needed

log = logging.getLogger("leveret.store")


@cython.final
cdef class SharedRefs:
    """Counts the references of one store, and finds their bodies."""

    def __init__(self, BodyStore bodies):
        self.bodies = bodies

    cdef int refer(self, Message* message, bint durable) except -1:
        """A record with a reference was added at the end."""
        self.bodies.take(message.reference, durable)
        self.count += 1
        return 0

    cdef int find(self, Message* message, uint64_t incarnation, touch) except -1:
        """Points a message at its shared body: BODY_FOUND; BODY_WAIT: `touch` is called when it can
        be had; BODY_MISSING: there is no such body any more."""
        cdef int found
        if self.reader is None:
            self.reader = BodyReader(self.bodies, touch)
        found = self.reader.want(message)
        if found == BODY_MISSING:
            log.error("queue %016x: the shared body %s is not there; its message is dropped",
                      incarnation, message.reference[:16].hex())
            self.bodies.count_dangling()
        return found

    cdef void show(self, Place* place, Message* message) noexcept:
        """The message at this place is shown, and may be taken next."""
        self.seen = 0
        if message.flags & BODY_IS_REFERENCE:
            self.seen = place_key(place)
            memcpy(self.seen_id, message.reference, 16)

    cdef int take(self, Place* place, Segments segments) except -1:
        """The message is read: what its settling needs is kept, for those with a shared body."""
        cdef uint64_t key = place_key(place)
        cdef uint64_t count
        cdef Row* row
        cdef Segment* segment
        if self.seen != key:
            return 0
        if self.taken is None:
            self.taken = NumberTable()
        count = self.taken.count
        row = self.taken.put(key)
        memcpy(&row.first, self.seen_id, 16)
        if self.taken.count > count:
            segment = segments.find(place.segment)
            if segment.references:
                segment.references -= 1
        return 0

    cdef int put_back(self, Place* place, Segment* segment) except -1:
        """Undoes `take`: the message is unread again."""
        cdef Row* row = NULL
        if self.taken is not None:
            row = self.taken.find(place_key(place))
        if row != NULL:
            self.taken.remove(row)
            segment.references += 1
        return 0

    cdef int drop(self, Place* place) except -1:
        """The message is settled: a shared body has one reference less."""
        cdef uint8_t id[16]
        cdef Row* row = NULL
        if self.taken is not None:
            row = self.taken.find(place_key(place))
        if row == NULL:
            return 0
        memcpy(id, &row.first, 16)
        self.taken.remove(row)
        self.count -= 1
        return self.bodies.drop(id)

    cdef int release_unread(self, Segments segments, then) except -1:
        """Removes unread records: a thread finds their references, and then they are given back.
        The files stay until they are read; `then` is called when they are or cannot be."""
        cdef Segment* segment = segments.cursor
        cdef Block* block
        cdef uint32_t start = segments.cursor_position
        cdef uint32_t from_, i
        cdef list pieces = []
        cdef list files = []
        while segment != NULL:
            if segment.references:
                skips = [(segment.skips[i].position, segment.skips[i].length)
                         for i in range(segment.skip_count)]
                from_ = start
                block = segments.first_block
                while block != NULL:
                    if block.segment == segment and block.start + block.length > from_:
                        if block.start > from_:
                            pieces.append((segment.number, from_, block.start, None, skips))
                            from_ = block.start
                        # The record of a large body has it with itself and refers to none.
                        if block.large == NULL:
                            pieces.append((
                                segment.number, from_, block.start + block.length,
                                block.data[from_ - block.start:block.length], skips))
                        from_ = block.start + <uint32_t> block.length
                    block = block.next
                if from_ < segment.length:
                    pieces.append((segment.number, from_, segment.length, None, skips))
                if segment.messages != NULL:
                    segment.messages.busy += 1
                    files.append(<size_t> segment.messages)
                self.count -= segment.references
                segment.references = 0
            segment = segment.next
            start = HEADER_BYTES
        if pieces:
            self.give_back(segments, pieces, files, then)
        return 0

    def give_back(self, Segments segments, list pieces, list files, then):
        directory = segments.folder.path
        incarnation = segments.folder.incarnation

        def found(ids, error):
            cdef size_t address
            if error is not None:
                log.error("queue %016x: references of dropped messages were not found: %s",
                          incarnation, error)
                self.bodies.doubt()
            elif ids is not None:
                self.bodies.drop_ids(ids)
                return
            for address in files:
                (<File*> address).busy -= 1
            then()

        segments.persister.collecting.submit(
            lambda: references_in(directory, incarnation, pieces), found)

    cdef int release_taken(self) except -1:
        """Gives back the references of messages that were read and are not settled."""
        cdef uint8_t id[16]
        cdef Row* row
        cdef uint64_t i
        if self.taken is None:
            return 0
        for i in range(self.taken.mask + 1 if self.taken.count else 0):
            row = &self.taken.rows[i]
            if row.key:
                memcpy(id, &row.first, 16)
                self.bodies.drop(id)
        self.count -= self.taken.count
        self.taken = None
        return 0

    cdef int rest(self) except -1:
        """The queue is idle: gives the memory of the last body back."""
        if self.reader is not None:
            self.reader.rest()
        return 0

    cdef int end(self) except -1:
        """The queue is deleted, and is not called any more."""
        if self.reader is not None:
            self.reader.wake = not_needed
            self.reader.end()
        return 0
