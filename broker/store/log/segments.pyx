# cython: language_level=3
"""Segments: which records of a queue or stream are in memory, which on disk, and how they are
written and removed.

New records are added to the tail, a block in memory. `freeze` turns unwritten records into
operations of a round; `written` frees the memory of records that are in their file, unless a
consumer is about to read them. A sealed segment whose messages are all settled is removed.

The store that holds the segments is listed with the persister, and is the `owner` below: it is
called again when files that are to be removed are not in flight any more.

Layouts: docs/formats/queue-segment.md. All writing goes through the persister.
"""

import os

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport strdup

from broker.kernel.large_body cimport LargeBody
from broker.kernel.message cimport Message, Place
from broker.store.commit.background cimport unlink_all
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.commit.tail_memory cimport TAIL_FULL, tail_free, tail_grown, tail_new
from broker.store.files.disk cimport file_free, file_new
from broker.store.files.operation cimport (
    File, OP_MKDIR, OP_RMDIR, OP_TRUNCATE, OP_UNLINK, OP_WRITE, OP_WRITE_ACKS, OP_WRITE_RECORDS, Op,
)
from broker.store.files.io_thread cimport (
    Round, STAGE_MAKE, STAGE_REMOVE, STAGE_WRITE, round_add, round_new,
)
from broker.store.files.space_ahead cimport frequency_of, inherit_frequency
from broker.store.files.record cimport (
    ACK_BYTES, ACK_VALUE_MASK, ACK_WATERMARK, ACKS_MAGIC, AckEntry, FORMAT_VERSION, HEADER_BYTES,
    SEGMENT_MAGIC, record_bytes, record_put_front,
)

cdef enum:
    TAIL_NEXT = 4096             # bytes that a tail which is not a segment's first begins with
    # How far a watermark is written ahead of the deliveries: this much, and what this many rounds
    # like the current one write.
    AHEAD = 1 << 20
    AHEAD_ROUNDS = 8
    # Written records that stay for consumers take a quarter of `tail_memory` at most.
    KEPT_PART = 4


cdef uint8_t segment_header[8]
(<uint32_t*> segment_header)[0] = SEGMENT_MAGIC
(<uint32_t*> segment_header)[1] = FORMAT_VERSION
cdef uint8_t acks_header[8]
(<uint32_t*> acks_header)[0] = ACKS_MAGIC
(<uint32_t*> acks_header)[1] = FORMAT_VERSION


cdef void segment_free(Segment* segment) noexcept:
    free(segment.pending)
    free(segment.skips)
    free(segment)


cdef void block_free(Block* block) noexcept:
    tail_free(block.data, block.capacity)
    if block.large != NULL:
        Py_DECREF(<object> block.large)
    free(block.pending)
    free(block)


cdef int room_for_entries(AckEntry** entries, uint32_t* capacity, uint32_t wanted) except -1:
    cdef AckEntry* grown
    cdef uint32_t larger = capacity[0] * 2 if capacity[0] else 32
    while larger < wanted:
        larger *= 2
    grown = <AckEntry*> realloc(entries[0], larger * sizeof(AckEntry))
    if grown == NULL:
        raise MemoryError("no memory for acks")
    entries[0] = grown
    capacity[0] = larger
    return 0


cdef int push_entry(AckEntry** entries, uint32_t* count, uint32_t* capacity, uint32_t position,
                    uint32_t word) except -1:
    if count[0] == capacity[0]:
        room_for_entries(entries, capacity, count[0] + 1)
    entries[0][count[0]].position = position
    entries[0][count[0]].word = word
    count[0] += 1
    return 0


cdef int push_settled(AckEntry** entries, uint32_t* count, uint32_t* capacity,
                      const Place* places, uint32_t more) except -1:
    """An entry for each of these messages, that it is settled. Raises MemoryError and changes
    nothing."""
    cdef uint32_t i
    cdef AckEntry* entry
    if count[0] + more > capacity[0]:
        room_for_entries(entries, capacity, count[0] + more)
    entry = entries[0] + count[0]
    for i in range(more):
        entry[i].position = places[i].position
        entry[i].word = places[i].length & ACK_VALUE_MASK
    count[0] += more
    return 0


def not_needed():
    """Replaces `touch` in a store that is removed."""


@cython.final
cdef class QueueDirectory:
    """The directory of one queue in `parent`: made with the first file, and removed when the queue
    is deleted and all who had files in it have left."""

    def __init__(self, Persister persister, str parent, uint64_t incarnation):
        self.persister = persister
        self.parent = parent
        self.incarnation = incarnation

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.incarnation:016x}"

    cdef int ensure(self, Round* round) except -1:
        """The round makes a file in it."""
        cdef Op* op
        if not self.made:
            self.made = True
            encoded = os.fsencode(self.path)
            op = round_add(round, STAGE_MAKE, OP_MKDIR, NULL)
            op.path = strdup(<char*> encoded)
            self.persister.note_directory(self.parent)
        return 0

    cdef int leave(self) except -1:
        """The queue is deleted, and one of the users has no files any more. The last one removes
        the directory: the writer may be making a file for another."""
        cdef Round* round
        cdef Op* op
        self.users -= 1
        if self.users or not self.made:
            return 0
        self.made = False
        round = round_new()
        self.persister.forget_directory(self.path)
        unlink_all(round, self.persister.background.left_behind(self.path))
        encoded = os.fsencode(self.path)
        op = round_add(round, STAGE_REMOVE, OP_RMDIR, NULL)
        op.path = strdup(<char*> encoded)
        return self.persister.background.remove(round)


@cython.final
cdef class Segments:
    """The segments of one store, with numbers from `first_number` on: as many others as
    `numbers_behind`, and then from the first one again."""

    def __init__(self, QueueDirectory folder, bint durable, uint32_t first_number=1,
                 uint32_t numbers_behind=0xFFFFFFFE):
        self.persister = folder.persister
        self.folder = folder
        folder.users += 1
        self.durable = durable
        self.first_number = self.next_number = first_number
        self.numbers_behind = numbers_behind

    def __dealloc__(self):
        cdef Block* block = self.first_block
        cdef Block* next_block
        cdef Segment* segment
        while block != NULL:
            next_block = block.next
            block_free(block)
            block = next_block
        while self.head != NULL:
            segment = self.head
            self.head = segment.next
            file_free(segment.messages)
            file_free(segment.acks)
            segment_free(segment)

    # -- what is in memory -------------------------------------------------------------------------

    cdef int roll(self) except -1:
        """Seals the active segment and begins the next one."""
        cdef Segment* segment
        if self.tail != NULL:
            if self.tail.length:
                self.tail.state = FROZEN
                self.tail = NULL
            else:
                self.free_block(self.tail)
        if self.active != NULL:
            self.active.sealed = True
            self.has_surplus = self.extends
            if self.extends and self.active.messages != NULL:
                # Large rounds may fill a segment before there were many.
                self.frequency = frequency_of(self.active.messages)
        segment = <Segment*> calloc(1, sizeof(Segment))
        if segment == NULL:
            raise MemoryError("no memory for a segment")
        if self.next_number - self.first_number > self.numbers_behind:
            self.next_number = self.first_number
            while self.find(self.next_number) != NULL:
                self.next_number += 1
        segment.number = self.next_number
        segment.length = HEADER_BYTES
        self.next_number += 1
        self.append(segment)
        self.active = segment
        return 0

    cdef int append(self, Segment* segment) except -1:
        """A segment behind all others."""
        if self.last != NULL:
            self.last.next = segment
        else:
            self.head = segment
        self.last = segment
        if self.cursor == NULL:
            self.cursor = segment
            self.cursor_position = HEADER_BYTES
            self.cursor_skip = 0
        return 0

    cdef Block* new_tail(self, uint32_t length) except NULL:
        cdef Block* tail = <Block*> calloc(1, sizeof(Block))
        if tail == NULL:
            raise MemoryError("no memory for a queue's tail")
        if self.active.count and length < TAIL_NEXT and self.persister.has_few_dirty():
            # Growing copies. But many queues never have more than a message or two, and of 100,000
            # with one each 400 MiB of room would be empty.
            length = TAIL_NEXT
        tail.data = tail_new(length, &tail.capacity)
        if tail.data == NULL:
            free(tail)
            raise MemoryError("no memory for a queue's tail")
        self.add_block(tail)
        self.tail = tail
        return tail

    cdef void add_block(self, Block* block) noexcept:
        """A block behind all others."""
        block.segment = self.active
        block.start = self.active.length
        if self.last_block == NULL:
            self.first_block = block
        else:
            self.last_block.next = block
        self.last_block = block

    cdef Block* new_large(self, const Message* message, const uint8_t* first,
                          uint32_t first_length) except NULL:
        """A block with the record of a message whose body is large: it has the body's memory. With
        bytes in front of the properties, as in `record_put_behind`."""
        cdef Block* block = <Block*> calloc(1, sizeof(Block))
        cdef uint32_t front = record_bytes(message) + first_length - message.body_length
        if block == NULL:
            raise MemoryError("no memory for a large message")
        block.data = tail_new(front, &block.capacity)
        if block.data == NULL:
            free(block)
            raise MemoryError("no memory for a large message")
        if self.tail != NULL:
            if self.tail.length:
                self.tail.state = FROZEN
                self.tail = NULL
            else:
                self.free_block(self.tail)
        record_put_front(block.data, message, first, first_length)
        block.large = message.large
        Py_INCREF(<object> block.large)
        block.state = FROZEN
        self.add_block(block)
        self.persister.large_bytes += front + message.body_length
        self.persister.press()
        return block

    cdef Block* room_for(self, uint32_t length) except NULL:
        """The tail, with room for `length` bytes more; a full one is written by the next round."""
        cdef Block* tail = self.tail
        cdef uint8_t* grown
        if tail != NULL and tail.length >= TAIL_FULL:
            tail.state = FROZEN
            self.tail = tail = NULL
            self.persister.press()
        if tail == NULL:
            return self.new_tail(length)
        if tail.length + length > tail.capacity:
            grown = tail_grown(tail.data, tail.length, tail.length + length, &tail.capacity)
            if grown == NULL:
                raise MemoryError("no memory for a queue's tail")
            tail.data = grown
        return tail

    cdef void free_block(self, Block* block) noexcept:
        """Takes a block out of the list."""
        cdef Block* before = NULL
        cdef Block* each = self.first_block
        while each != NULL and each != block:
            before = each
            each = each.next
        if before == NULL:
            self.first_block = block.next
        else:
            before.next = block.next
        if self.last_block == block:
            self.last_block = before
        if self.tail == block:
            self.tail = NULL
        if block.state == WRITTEN:
            self.persister.kept_bytes -= block.length
        else:
            self.no_longer_unwritten(block)
        block_free(block)

    cdef void no_longer_unwritten(self, Block* block) noexcept:
        if block.large != NULL:
            self.persister.large_bytes -= block.length
        else:
            self.persister.tail_bytes -= block.length

    cdef bint may_keep(self, Block* block) noexcept:
        """Whether a written block may stay in memory: a consumer reads it next, and all that stays
        so takes a quarter of the memory for unwritten records at most."""
        return (block.segment == self.cursor
                and block.start <= self.cursor_position < block.start + block.length
                and (self.persister.kept_bytes + block.length) * KEPT_PART
                <= self.persister.tail_limit)

    cdef void free_written(self) noexcept:
        """What waited in memory for consumers is on disk, too, and is not read next any more."""
        cdef Block* block = self.first_block
        cdef Block* following
        while block != NULL:
            following = block.next
            if block.state == WRITTEN:
                self.free_block(block)
            block = following

    cdef void free_unwritten(self) noexcept:
        """The queue is deleted: frees all records in memory that no round is writing."""
        cdef Block* block = self.first_block
        cdef Block* following
        self.ending = True
        while block != NULL:
            following = block.next
            if block.state != WRITING:
                self.free_block(block)
            block = following

    cdef int drop_tail(self) except -1:
        """Every record of the tail is settled: it never reaches the disk, and its positions are
        free."""
        cdef Block* tail = self.tail
        cdef Segment* segment = tail.segment
        self.drops += 1
        segment.count -= tail.count
        segment.settled -= tail.settled
        segment.length = tail.start
        if self.cursor == segment and self.cursor_position > tail.start:
            self.cursor_position = tail.start
        segment.passed -= tail.count
        segment.referring -= tail.referring
        segment.settled_bytes -= tail.length
        self.persister.tail_bytes -= tail.length
        tail.length = 0
        tail.count = 0
        tail.referring = 0
        tail.flags = 0
        tail.overhead = 0
        tail.body_bytes = 0
        tail.settled = 0
        tail.pending_count = 0
        return 0

    cdef Block* block_of(self, Segment* segment, uint32_t position) noexcept:
        """The block in memory that holds the record at this position, or NULL. Blocks are few:
        mostly one."""
        cdef Block* block = self.first_block
        while block != NULL:
            if block.segment == segment and block.start <= position < block.start + block.length:
                return block
            block = block.next
        return NULL

    cdef Segment* find(self, uint32_t number) noexcept:
        cdef Segment* segment = self.last_found
        if segment != NULL and segment.number == number:
            return segment
        if self.active != NULL and self.active.number == number:
            return self.active
        segment = self.head
        while segment != NULL and segment.number != number:
            segment = segment.next
        self.last_found = segment
        return segment

    cdef uint32_t written_end(self, Segment* segment, uint32_t position) noexcept:
        """Where what is surely in the file ends, behind `position`: the start of what is still in
        memory."""
        cdef uint32_t end = segment.length
        cdef Block* block = self.first_block
        while block != NULL:
            if block.segment == segment and position <= block.start < end:
                end = block.start
            block = block.next
        return end

    cdef bint was_read(self, Block* block) noexcept:
        """Whether records of the block may have been delivered."""
        if self.cursor == NULL:
            return True              # a purge removed the last segment: only taken records are left
        if self.cursor == block.segment:
            return self.cursor_position > block.start
        return self.cursor.number > block.segment.number

    cdef bint is_read_from_memory(self) noexcept:
        """Whether the next unread record is in memory, and so are all behind it."""
        cdef Block* block = self.first_block
        return block != NULL and (self.was_read(block) or (
            self.cursor == block.segment and self.cursor_position == block.start))

    cdef int note(self, Segment* segment, uint32_t position, uint32_t word) except -1:
        """An entry for the segment's acks file, written with the next round."""
        push_entry(&segment.pending, &segment.pending_count, &segment.pending_capacity,
                   position, word)
        return self.list_pending(segment)

    cdef int list_pending(self, Segment* segment) except -1:
        """The next round writes the segment's entries."""
        if not segment.pending_listed:
            segment.pending_listed = True
            segment.next_pending = self.first_pending
            self.first_pending = segment
        return 0

    cdef bint mark_exactly(self) except -1:
        """The watermarks say what was delivered up to now, and no more: what a later delivery
        needs is written again. Returns whether anything was noted."""
        cdef Segment* segment = self.cursor
        cdef uint32_t exact = self.cursor_position
        cdef bint noted = False
        while segment != NULL and self.durable:
            if exact < segment.recovered_watermark:
                exact = segment.recovered_watermark
            if segment.watermark > exact:
                segment.watermark = exact
                self.note(segment, exact, <uint32_t> ACK_WATERMARK << 30)
                noted = True
                if segment.watermark_flying > exact:
                    segment.watermark_flying = exact
                if segment.watermark_safe > exact:
                    segment.watermark_safe = exact
            exact = HEADER_BYTES
            segment = segment.next
        return noted

    # -- removal -----------------------------------------------------------------------------------

    cdef int drop(self, Segment* segment, Dirty owner) except -1:
        """All records of a sealed segment are settled: removes it from memory and disk."""
        cdef Segment* before = NULL
        cdef Segment* each = self.head
        cdef Block* block
        cdef Block* next_block
        cdef Segment** link = &self.first_pending
        while each != segment:
            before = each
            each = each.next
        if before == NULL:
            self.head = segment.next
        else:
            before.next = segment.next
        if self.last == segment:
            self.last = before
        if self.active == segment:
            self.active = NULL
        if self.cursor == segment:
            self.cursor = segment.next
            self.cursor_position = HEADER_BYTES
            self.cursor_skip = 0
        if self.last_found == segment:
            self.last_found = NULL
        while link[0] != NULL and link[0] != segment:
            link = &link[0].next_pending
        if link[0] == segment:
            link[0] = segment.next_pending
        segment.next = NULL
        block = self.first_block
        while block != NULL:
            next_block = block.next
            if block.segment == segment and block.state != WRITING:
                self.free_block(block)
            block = next_block
        return self.remove(segment, owner)

    cdef int remove(self, Segment* segment, Dirty owner) except -1:
        """Removes the files, or waits until they are not in flight any more."""
        cdef Round* round
        if segment.removal == 0 and not self.ending and (
                segment.messages != NULL or segment.acks != NULL):
            # It may be what settles messages: who is answered behind a round waits for it. A queue
            # that is deleted is gone by the journal, and a long one may have files for seconds.
            segment.removal = self.persister.background.removal_begins()
        if ((segment.messages != NULL and segment.messages.busy)
                or (segment.acks != NULL and segment.acks.busy)):
            # Should the round wait for space on a full disk: not for the sake of these files.
            if segment.messages != NULL:
                segment.messages.gone = True
            if segment.acks != NULL:
                segment.acks.gone = True
            if self.removing is None:
                self.removing = []
            self.removing.append(<size_t> segment)
            self.persister.retry_later(owner)
            return 0
        if segment.messages != NULL or segment.acks != NULL:
            round = round_new()
            round.number = segment.removal
            # Until the removal of the messages is on disk, the files that mark them as settled must
            # stay.
            later = self.durable and not self.ending and segment.messages != NULL
            behind = []
            if segment.messages != NULL:
                self.persister.forget(segment.messages)
                round_add(round, STAGE_REMOVE, OP_UNLINK, segment.messages)
            if segment.acks != NULL:
                self.persister.forget(segment.acks)
                if later:
                    behind.append(os.fsdecode(<bytes> segment.acks.path))
                    file_free(segment.acks)
                else:
                    round_add(round, STAGE_REMOVE, OP_UNLINK, segment.acks)
            if segment.summarised:
                behind.append(f"{self.folder.path}/meta.{segment.number:010d}")
            if later:
                self.persister.background.leave_behind(round.number, self.folder.path, behind)
            else:
                unlink_all(round, behind)
            self.persister.background.remove(round)
        segment_free(segment)
        return 0

    cdef int remove_waiting(self, Dirty owner) except -1:
        """Files may not be in flight any more."""
        cdef list addresses
        cdef size_t address
        if self.removing:
            addresses = self.removing
            self.removing = None
            for address in addresses:
                self.remove(<Segment*> address, owner)
        return 0

    cdef bint is_being_written(self) noexcept:
        """Whether a round has records of the deleted queue. Should it wait for space on a full
        disk: not for the sake of these files."""
        cdef Segment* segment = self.head
        if self.first_block == NULL:
            return False
        while segment != NULL:
            if segment.messages != NULL:
                segment.messages.gone = True
            segment = segment.next
        return True

    cdef bint remove_all(self, Dirty owner) except -1:
        """The queue is deleted, and nothing reads or writes its segments. Returns whether no file
        is left."""
        cdef Segment* segment
        self.first_pending = NULL
        while self.head != NULL:
            segment = self.head
            self.head = segment.next
            segment.next = NULL
            self.remove(segment, owner)
        self.active = self.cursor = self.last = self.last_found = NULL
        if self.removing:
            return False
        if not self.left:
            self.left = True
            self.folder.leave()
        return True

    # -- rounds ------------------------------------------------------------------------------------

    cdef File* ensure_file(self, Round* round, Segment* segment, bint acks) except NULL:
        cdef File* file = segment.acks if acks else segment.messages
        cdef Op* op
        if file == NULL:
            self.folder.ensure(round)
            file = file_new(
                f"{self.folder.path}/{'acks' if acks else 'msgs'}.{segment.number:010d}")
            if acks:
                segment.acks = file
            else:
                segment.messages = file
                if self.extends:
                    inherit_frequency(file, self.frequency)
            if self.durable:
                self.persister.note_directory(self.folder.path)
            self.persister.files.use(round, file)
            op = round_add(round, STAGE_WRITE, OP_WRITE, file)
            op.data = &acks_header[0] if acks else &segment_header[0]
            op.length = HEADER_BYTES
            op.offset = 0
            if acks:
                segment.acks_length = HEADER_BYTES
        else:
            self.persister.files.use(round, file)
        return file

    cdef int freeze(self, Round* round, bint keep) except -1:
        """Adds all that is unwritten to a round. `keep`: consumers are there, and will soon have
        the records."""
        if self.tail != NULL and self.tail.length:
            self.tail.state = FROZEN
            self.tail = NULL
        # Acks and watermarks first: a record must not be found on disk without the mark that it may
        # have been delivered.
        self.freeze_marks(keep)
        self.freeze_acks(round)
        self.freeze_records(round, keep)
        if self.has_surplus:
            self.freeze_surplus(round)
        return 0

    cdef int freeze_marks(self, bint keep) except -1:
        """Notes what was settled in blocks that the round writes, and watermarks for them."""
        cdef Block* block = self.first_block
        cdef Segment* segment
        cdef uint32_t i, end
        while block != NULL:
            if block.state == FROZEN:
                segment = block.segment
                for i in range(block.pending_count):
                    self.note(segment, block.pending[i].position, block.pending[i].word)
                free(block.pending)
                block.pending = NULL
                block.pending_count = block.pending_capacity = 0
                if self.durable and (keep or self.was_read(block)):
                    end = block.start + <uint32_t> block.length
                    if self.closing and self.cursor == segment and self.cursor_position < end:
                        end = self.cursor_position
                    if segment.watermark < end:
                        segment.watermark = end
                        if not self.closing:
                            segment.watermark += (
                                AHEAD
                                + AHEAD_ROUNDS * <uint32_t> min(block.length, <size_t> TAIL_FULL))
                        self.note(segment, segment.watermark, <uint32_t> ACK_WATERMARK << 30)
            block = block.next
        return 0

    cdef int freeze_acks(self, Round* round) except -1:
        cdef Segment** link = &self.first_pending
        cdef Segment* segment
        cdef Op* op
        while link[0] != NULL:
            segment = link[0]
            if (self.durable and not round.acks and not self.closing
                    and segment.watermark == segment.watermark_flying):
                link = &segment.next_pending
                continue
            link[0] = segment.next_pending
            segment.next_pending = NULL
            segment.pending_listed = False
            if not self.durable:
                segment.pending_count = 0
                continue
            self.ensure_file(round, segment, True)
            op = round_add(round, STAGE_WRITE, OP_WRITE_ACKS, segment.acks)
            op.data = <uint8_t*> segment.pending
            op.owns_data = True
            op.length = segment.pending_count * ACK_BYTES
            op.offset = segment.acks_length
            op.incarnation = self.folder.incarnation
            op.segment = segment.number
            segment.acks_length += segment.pending_count * ACK_BYTES
            segment.pending = NULL
            segment.pending_count = segment.pending_capacity = 0
            # A watermark must be on disk with the records that it covers; acks may be lost for 200
            # ms.
            self.persister.note_written(segment.acks, segment.watermark == segment.watermark_flying)
            segment.watermark_flying = segment.watermark
            self.marks_flying = True
            self.persister.bytes_written += op.length
        return 0

    cdef int freeze_records(self, Round* round, bint keep) except -1:
        cdef Block* block = self.first_block
        cdef bint is_read_back = not (keep and self.is_read_from_memory())
        cdef Segment* segment
        cdef Op* op
        while block != NULL:
            if block.state == FROZEN:
                segment = block.segment
                self.ensure_file(round, segment, False)
                op = round_add(round, STAGE_WRITE, OP_WRITE_RECORDS, segment.messages)
                op.can_wait = True
                if self.extends and round.sync and not segment.sealed:
                    op.extend_by = self.persister.space_ahead
                    op.extend_to = self.persister.segment_size
                    op.direct_files = <uint32_t> self.persister.direct.files
                op.is_read_back = is_read_back
                op.data = block.data
                op.length = block.length
                op.offset = block.start
                if block.large != NULL:
                    op.body = (<LargeBody> block.large).body()
                    op.body_length = (<LargeBody> block.large).length
                    op.length -= op.body_length
                op.incarnation = self.folder.incarnation
                op.segment = segment.number
                block.state = WRITING
                if segment.overhead == 0:
                    segment.overhead = block.overhead
                elif segment.overhead != block.overhead:
                    segment.overhead = MIXED
                segment.body_bytes += block.body_bytes
                segment.flags |= block.flags
                if self.durable:
                    self.persister.note_written(segment.messages, False)
                self.persister.bytes_written += block.length
                self.persister.segment_writes += 1
            block = block.next
        return 0

    cdef int freeze_surplus(self, Round* round) except -1:
        """Gives back the space ahead in files that need none any more."""
        cdef Segment* segment = self.head
        while segment != NULL:
            if (segment.messages != NULL and segment.messages.ahead
                    and (segment.sealed or self.gives_back)):
                round_add(round, STAGE_WRITE, OP_TRUNCATE, segment.messages)
            segment = segment.next
        self.has_surplus = self.gives_back = False
        return 0

    cdef bint give_back(self) noexcept:
        """The active segment, too, shall give back its space ahead; whether it has any."""
        if self.active == NULL or self.active.messages == NULL or not self.active.messages.ahead:
            return False
        self.has_surplus = self.gives_back = True
        return True

    cdef int written(self, bint keep, Dirty owner) except -1:
        """A round is over. `keep`: consumers are there, and what they read next stays in memory."""
        cdef Block* block = self.first_block
        cdef Block* next_block
        cdef Segment* segment = self.head if self.marks_flying else NULL
        self.marks_flying = False
        while segment != NULL:
            if segment.watermark_flying > segment.watermark_safe:
                segment.watermark_safe = segment.watermark_flying
            segment = segment.next
        while block != NULL:
            next_block = block.next
            if block.state == WRITING and not self.persister.postponed.holds(block.data):
                if keep and self.may_keep(block):
                    self.no_longer_unwritten(block)
                    self.persister.kept_bytes += block.length
                    block.state = WRITTEN
                else:
                    self.free_block(block)
            block = next_block
        return self.remove_waiting(owner)

    cdef bint is_postponed(self) noexcept:
        """Behind `written`: whether records of the round found no space and go with the next."""
        cdef Block* block = self.first_block
        while block != NULL:
            if block.state == WRITING:
                return True
            block = block.next
        return False

    cdef bint has_no_files(self) noexcept:
        """Whether there is no segment, not even one that is removed when its files are not in
        flight."""
        return self.head == NULL and self.removing is None

    # -- figures -----------------------------------------------------------------------------------

    cdef int64_t count(self) noexcept:
        cdef Segment* segment = self.head
        cdef int64_t count = 0
        while segment != NULL:
            count += 1
            segment = segment.next
        return count

    cdef int64_t disk_bytes(self) noexcept:
        """Bytes that the files take on the disk, as handed to the writer, without holes."""
        cdef Segment* segment = self.head
        cdef Block* block = self.first_block
        cdef int64_t count = 0
        while segment != NULL:
            if segment.messages != NULL:
                count += segment.length - segment.holes
            count += segment.acks_length
            segment = segment.next
        while block != NULL:
            if block.state < WRITING and block.segment.messages != NULL:
                count -= block.length
            block = block.next
        return count
