# cython: language_level=3
"""The references of one queue to shared bodies.

Every living record with a reference counts once in the vhost's body store. Of unread records only
their number in each segment is known; the ids of read ones are kept in `taken` until they are
settled. So unread messages cost no memory here either.
"""

import logging

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.message cimport Message, Place
from broker.store.bodies.reader cimport BODY_FOUND, BODY_WAIT, BodyReader
from broker.store.bodies.references import references_in
from broker.store.files.operation cimport File
from broker.store.files.record cimport HEADER_BYTES
from broker.store.index.number_table cimport NumberTable, Row
from broker.store.log.sealed cimport Sealed
from broker.store.log.segments cimport Block, Segment

log = logging.getLogger("leveret.store")


cdef class QueueBodies(Sealed):
    """The part of a queue's store that counts references."""

    cdef int refer(self, Message* message, Segment* segment) except -1:
        """A record with a reference was added at the end."""
        self.bodies.take(message.reference, self.durable)
        self.references += 1
        segment.references += 1
        segment.referring += 1
        self.tail.referring += 1
        return 0

    def count_references(self) -> int:
        """Living records whose body is shared."""
        return self.references

    cdef int find_body(self, Message* message) except -1:
        """Points a message at its shared body. WAIT: the owner is touched when it can be had.
        EMPTY: there is no such body any more."""
        cdef int found
        if message.body != NULL:
            return FOUND
        if self.body is None:
            self.body = BodyReader(self.bodies, self.owner_touch)
        found = self.body.want(message)
        if found == BODY_FOUND:
            return FOUND
        if found == BODY_WAIT:
            return WAIT
        log.error("queue %016x: the shared body %s is not there; its message is dropped",
                  self.incarnation, message.reference[:16].hex())
        self.bodies.count_dangling()
        return EMPTY

    cdef int note_taken(self, Place* place) except -1:
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
            segment = self.find(place.segment)
            if segment.references:
                segment.references -= 1
        return 0

    cdef int drop_taken(self, Place* place) except -1:
        """The message is settled: a shared body has one reference less."""
        cdef uint8_t id[16]
        cdef Row* row = NULL
        if self.taken is not None:
            row = self.taken.find(place_key(place))
        if row == NULL:
            return 0
        memcpy(id, &row.first, 16)
        self.taken.remove(row)
        self.references -= 1
        return self.bodies.drop(id)

    cdef int release_unread(self) except -1:
        """Removes unread records: a thread finds their references, and then they are given back.
        The files stay until they are read."""
        cdef Segment* segment = self.cursor
        cdef Block* block
        cdef uint32_t start = self.cursor_position
        cdef uint32_t from_, i
        cdef list pieces = []
        cdef list files = []
        while segment != NULL:
            if segment.references:
                skips = [(segment.skips[i].position, segment.skips[i].length)
                         for i in range(segment.skip_count)]
                from_ = start
                block = self.first_block
                while block != NULL:
                    if block.segment == segment and block.start + block.length > from_:
                        if block.start > from_:
                            pieces.append((segment.number, from_, block.start, None, skips))
                            from_ = block.start
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
                self.references -= segment.references
                segment.references = 0
            segment = segment.next
            start = HEADER_BYTES
        if pieces:
            self.give_back(pieces, files)
        return 0

    def give_back(self, list pieces, list files):
        directory = self.directory
        incarnation = self.incarnation

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
            self.remove_waiting()
            if self.deleted:
                self.finish_delete()

        self.persister.collecting.submit(
            lambda: references_in(directory, incarnation, pieces), found)

    def release_taken(self) -> None:
        """Gives back the references of messages that were read and are not settled."""
        cdef uint8_t id[16]
        cdef Row* row
        cdef uint64_t i
        if self.taken is None:
            return
        for i in range(self.taken.mask + 1 if self.taken.count else 0):
            row = &self.taken.rows[i]
            if row.key:
                memcpy(id, &row.first, 16)
                self.bodies.drop(id)
        self.references -= self.taken.count
        self.taken = None
