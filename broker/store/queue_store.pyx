# cython: language_level=3
"""One queue's messages: segments on disk, a tail in memory, a cursor that reads them in order.

Invariants:
- A queued message costs no memory once it is written. What is in memory is the unwritten tail,
blocks that consumers are about to read,
  and one read buffer.
- Records are written in the order of their positions; a segment's tail is written whole or, when
every record in it is settled, dropped
  whole, and then its positions were never on disk.
- `ready` counts what the cursor has not reached plus what was requeued; `total` counts what is not
settled.
- A record that can be found on disk after a crash is delivered only when a watermark beyond it is
written or travels in the same round,
  so that it comes back with redelivered set.

Layouts: docs/formats/queue-segment.md. All writing goes through the persister, all waiting reads
through its reader thread.
"""

import logging
import os

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, strdup

from broker.kernel.message cimport Message, Place
from broker.store.disk cimport (
    File, Op, OP_MKDIR, OP_OPEN, OP_READ, OP_RMDIR, OP_UNLINK, OP_WRITE, OP_WRITE_ACKS, OP_WRITE_RECORDS, file_free, file_new,
    read_now,
)
from broker.store.io_thread cimport (
    Round, STAGE_MAKE, STAGE_REMOVE, STAGE_WRITE, round_add, round_free, round_new,
)
from broker.store.persister cimport Dirty, Persister
from broker.store.record cimport (
    ACK_BYTES, ACK_RUN, ACK_SETTLED, ACK_VALUE_MASK, ACK_WATERMARK, ACKS_MAGIC, FORMAT_VERSION, HEADER_BYTES, RECORD_FIXED,
    SEGMENT_MAGIC, AckEntry, RecordHead, record_bytes, record_check, record_fits, record_put, record_view,
)

log = logging.getLogger("leveret.store")

cdef enum:
    TAIL_FIRST = 4096            # bytes a new tail starts with
    TAIL_FULL = 1 << 20          # a tail of this size is frozen
    TAIL_KEEP = 65536            # an idle tail above this size is given back
    READ_AHEAD = 128 << 10
    AHEAD = 1 << 20              # how far a watermark is written ahead of what is delivered


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
    free(block.data)
    free(block.pending)
    free(block)


cdef int push_entry(AckEntry** entries, uint32_t* count, uint32_t* capacity, uint32_t position, uint32_t word) except -1:
    cdef AckEntry* grown
    cdef uint32_t wanted
    if count[0] == capacity[0]:
        wanted = capacity[0] * 2 if capacity[0] else 32
        grown = <AckEntry*> realloc(entries[0], wanted * sizeof(AckEntry))
        if grown == NULL:
            raise MemoryError("no memory for acks")
        entries[0] = grown
        capacity[0] = wanted
    entries[0][count[0]].position = position
    entries[0][count[0]].word = word
    count[0] += 1
    return 0


cdef class QueueStore(Dirty):
    """The store of one queue. `touch()` is called when something that `peek` had to wait for is
    there."""

    def __init__(self, Persister persister, str parent, uint64_t incarnation, bint durable, touch):
        self.persister = persister
        self.parent = parent
        self.incarnation = incarnation
        self.durable = durable
        self.owner_touch = touch
        self.next_number = 1
        self.removing = []

    def __dealloc__(self):
        cdef Block* block = self.first_block
        cdef Block* next_block
        cdef Segment* segment = self.head
        cdef Segment* next_segment
        while block != NULL:
            next_block = block.next
            block_free(block)
            block = next_block
        while segment != NULL:
            next_segment = segment.next
            file_free(segment.messages)
            file_free(segment.acks)
            segment_free(segment)
            segment = next_segment
        free(self.heap)
        free(self.read_data)

    @property
    def directory(self) -> str:
        return f"{self.parent}/{self.incarnation:016x}"

    # -- writing -----------------------------------------------------------------------------------

    cdef int append(self, Message* message) except -1:
        """Stores one message at the end."""
        cdef uint32_t length = record_bytes(message)
        cdef Segment* segment = self.active
        cdef Block* tail = self.tail
        cdef uint8_t* grown
        cdef size_t capacity
        if segment == NULL or (segment.length + <uint64_t> length > self.persister.segment_size and segment.count > 0):
            self.roll()
            segment = self.active
            tail = self.tail
        if tail != NULL and tail.length >= TAIL_FULL:
            tail.state = FROZEN
            self.tail = tail = NULL
            self.persister.press()
        if tail == NULL:
            tail = self.new_tail(length)
        elif tail.length + length > tail.capacity:
            capacity = tail.capacity * 2
            while capacity < tail.length + length:
                capacity *= 2
            grown = <uint8_t*> realloc(tail.data, capacity)
            if grown == NULL:
                raise MemoryError("no memory for a queue's tail")
            tail.data = grown
            tail.capacity = capacity
        record_put(tail.data + tail.length, message)
        tail.length += length
        tail.count += 1
        segment.length += length
        segment.count += 1
        self.ready += 1
        self.ready_bytes += length
        self.total += 1
        self.total_bytes += length
        self.persister.tail_bytes += length
        if not self.dirty:
            self.persister.add(self)
        return 0

    cdef int roll(self) except -1:
        """Seals the active segment and begins the next one."""
        cdef Segment* segment
        cdef Segment* last
        cdef Segment* old = self.active
        if self.tail != NULL:
            if self.tail.length:
                self.tail.state = FROZEN
                self.tail = NULL
            else:
                self.free_block(self.tail)
        if self.active != NULL:
            self.active.sealed = True
        segment = <Segment*> calloc(1, sizeof(Segment))
        if segment == NULL:
            raise MemoryError("no memory for a segment")
        segment.number = self.next_number
        segment.length = HEADER_BYTES
        self.next_number += 1
        last = self.active if self.active != NULL else self.head
        while last != NULL and last.next != NULL:
            last = last.next
        if last != NULL:
            last.next = segment
        else:
            self.head = segment
        self.active = segment
        if self.cursor == NULL:
            self.cursor = segment
            self.cursor_position = HEADER_BYTES
            self.cursor_skip = 0
        if old != NULL and old.settled == old.count:
            self.drop_segment(old)
        return 0

    cdef Block* new_tail(self, uint32_t length) except NULL:
        cdef Block* tail = <Block*> calloc(1, sizeof(Block))
        cdef size_t capacity = TAIL_FIRST
        if tail == NULL:
            raise MemoryError("no memory for a queue's tail")
        while capacity < length:
            capacity *= 2
        tail.data = <uint8_t*> malloc(capacity)
        if tail.data == NULL:
            free(tail)
            raise MemoryError("no memory for a queue's tail")
        tail.capacity = capacity
        tail.segment = self.active
        tail.start = self.active.length
        if self.last_block == NULL:
            self.first_block = tail
        else:
            self.last_block.next = tail
        self.last_block = tail
        self.tail = tail
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
        self.persister.tail_bytes -= block.length
        block_free(block)

    cdef int drop_tail(self) except -1:
        """Every record of the tail is settled: it never reaches the disk, and its positions are
        free."""
        cdef Block* tail = self.tail
        cdef Segment* segment = tail.segment
        segment.count -= tail.count
        segment.settled -= tail.settled
        segment.length = tail.start
        if self.cursor == segment and self.cursor_position > tail.start:
            self.cursor_position = tail.start
        self.persister.tail_bytes -= tail.length
        tail.length = 0
        tail.count = 0
        tail.settled = 0
        tail.pending_count = 0
        return 0

    # -- reading -----------------------------------------------------------------------------------

    cdef int peek(self, Message* message, Place* place) except -1:
        """Points at the next message to deliver. WAIT: the owner is touched when it can be had. The
        view ends with the next call."""
        cdef Segment* segment
        cdef uint32_t position
        if self.ready == 0:
            return EMPTY
        if self.heap_count:
            segment = self.find(<uint32_t> (self.heap[0].key >> 32))
            return self.view(segment, <uint32_t> self.heap[0].key, message, place, True)
        segment = self.cursor
        position = self.cursor_position
        while True:
            while self.cursor_skip < segment.skip_count and segment.skips[self.cursor_skip].position == position:
                position += segment.skips[self.cursor_skip].length
                self.cursor_skip += 1
            if position < segment.length:
                break
            if segment.next == NULL:
                self.cursor_position = position
                return EMPTY
            self.leave_segment(segment)
            segment = segment.next
            position = HEADER_BYTES
            self.cursor = segment
            self.cursor_skip = 0
        self.cursor_position = position
        return self.view(segment, position, message, place, False)

    cdef int leave_segment(self, Segment* segment) except -1:
        """The cursor goes on to the next segment: the skips are of no more use."""
        free(segment.skips)
        segment.skips = NULL
        segment.skip_count = 0
        return 0

    cdef int view(self, Segment* segment, uint32_t position, Message* message, Place* place, bint redelivered) except -1:
        cdef Block* block = self.block_of(segment, position)
        cdef uint8_t* record
        cdef RecordHead* head
        if block != NULL:
            if self.durable and block.state >= WRITING:
                if position >= (segment.watermark if block.state == WRITING else segment.watermark_safe):
                    return self.want_watermark(segment)
            record = block.data + (position - block.start)
        else:
            if self.durable and position >= segment.watermark_safe:
                return self.want_watermark(segment)
            record = self.read_record(segment, position)
            if record == NULL:
                return WAIT
        head = <RecordHead*> record
        record_view(record, message)
        place.segment = segment.number
        place.position = position
        place.length = head.length + 4
        place.redelivered = redelivered or position < segment.recovered_watermark
        return FOUND

    cdef Block* block_of(self, Segment* segment, uint32_t position) noexcept:
        """The block in memory that holds the record at this position, or NULL. Blocks are few:
        mostly one."""
        cdef Block* block = self.first_block
        while block != NULL:
            if block.segment == segment and block.start <= position < block.start + block.length:
                return block
            block = block.next
        return NULL

    cdef int want_watermark(self, Segment* segment) except -1:
        """Nothing of this segment may be delivered from disk before a watermark beyond it is
        written: asks for the next round."""
        if segment.watermark < segment.length:
            segment.watermark = segment.length
            self.note(segment, segment.watermark, ACK_WATERMARK << 30)
        if not self.waiting_round:
            self.waiting_round = True
            self.persister.press()
        return WAIT

    cdef uint8_t* read_record(self, Segment* segment, uint32_t position) except? NULL:
        """A whole, checked record from the read buffer, or NULL while the reader thread fetches
        it."""
        cdef size_t have
        cdef size_t offset
        cdef size_t wanted = READ_AHEAD
        cdef RecordHead* head
        cdef uint8_t* record
        if self.reading:
            return NULL
        if self.read_segment == segment and position >= self.read_position:
            offset = position - self.read_position
            if offset < self.read_length:
                have = self.read_length - offset
                record = self.read_data + offset
                head = <RecordHead*> record
                if have >= RECORD_FIXED and <size_t> head.length + 4 > have and position + head.length + 4 <= segment.length:
                    wanted = <size_t> head.length + 4
                    if wanted < READ_AHEAD:
                        wanted = READ_AHEAD
                elif record_fits(record, have) and head.check == record_check(record, self.incarnation, segment.number, position):
                    return record
                elif have >= RECORD_FIXED:
                    return self.pass_over(segment, position, record, have)
        self.fetch(segment, position, wanted)
        if self.reading:
            return NULL
        return self.read_record(segment, position)

    cdef uint8_t* pass_over(self, Segment* segment, uint32_t position, uint8_t* record, size_t have) except? NULL:
        """The record at the cursor is not what was written. Searches the buffer for the next sound
        one and settles what lies between."""
        cdef size_t at
        cdef Place place
        for at in range(1, have):
            if record_fits(record + at, have - at) and (<RecordHead*> (record + at)).check == record_check(
                    record + at, self.incarnation, segment.number, position + <uint32_t> at):
                break
        else:
            at = have
        log.error("queue %016x: segment %d has %d unreadable bytes at position %d; delivery goes on behind them",
                  self.incarnation, segment.number, at, position)
        if self.heap_count and <uint32_t> self.heap[0].key == position and <uint32_t> (self.heap[0].key >> 32) == segment.number:
            at = self.heap[0].length
        place.segment = segment.number
        place.position = position
        place.length = <uint32_t> at
        place.redelivered = 0
        self.advance(&place)
        self.settle(&place)
        self.owner_touch()
        return NULL

    cdef int fetch(self, Segment* segment, uint32_t position, size_t wanted) except -1:
        """Fills the read buffer from `position`: at once if the page cache has it, else by the
        reader thread."""
        cdef Round* round
        cdef Op* op
        cdef uint8_t* grown
        cdef ssize_t got
        if wanted > segment.length - position:
            wanted = segment.length - position
        if wanted > self.read_capacity or self.read_capacity > 2 * wanted + READ_AHEAD:
            grown = <uint8_t*> realloc(self.read_data, wanted)
            if grown == NULL:
                raise MemoryError("no memory for a read buffer")
            self.read_data = grown
            self.read_capacity = wanted
        self.read_segment = segment
        self.read_position = position
        self.read_length = 0
        if segment.messages.fd >= 0 and segment.messages.listed:
            got = read_now(segment.messages.fd, self.read_data, wanted, position)
            if got > 0 and (<size_t> got == wanted or record_fits(self.read_data, got)):
                self.read_length = got
                return 0
        round = round_new()
        self.persister.use(round, segment.messages)
        op = round_add(round, STAGE_WRITE, OP_READ, segment.messages)
        op.data = self.read_data
        op.length = wanted
        op.offset = position
        self.reading = True
        self.persister.read(round, self)
        return 0

    cdef int read_done(self, Round* round) except -1:
        cdef Op* op = &round.stages[STAGE_WRITE].ops[0]
        self.reading = False
        self.read_length = op.done
        if round.error:
            log.error("queue %016x: reading failed: %s", self.incarnation, os.strerror(round.error))
            self.read_length = 0
            self.read_segment = NULL
        self.remove_waiting()
        if self.deleted:
            self.finish_delete()
        elif not round.error:
            self.owner_touch()
        return 0

    cdef int advance(self, Place* place) except -1:
        """The message that `peek` showed is taken."""
        cdef Block* block
        if self.heap_count and self.heap[0].key == (<uint64_t> place.segment << 32 | place.position):
            self.heap_pop()
        else:
            self.cursor_position = place.position + place.length
            block = self.first_block
            if block != NULL and block.state == WRITTEN:
                if block.segment != self.cursor or self.cursor_position >= block.start + block.length:
                    self.free_block(block)
        self.ready -= 1
        self.ready_bytes -= place.length
        return 0

    # -- settling ----------------------------------------------------------------------------------

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

    cdef int note(self, Segment* segment, uint32_t position, uint32_t word) except -1:
        """An entry for the segment's acks file, written with the next round."""
        push_entry(&segment.pending, &segment.pending_count, &segment.pending_capacity, position, word)
        if not segment.pending_listed:
            segment.pending_listed = True
            segment.next_pending = self.first_pending
            self.first_pending = segment
        if not self.dirty:
            self.persister.add(self)
        return 0

    cdef int settle(self, Place* place) except -1:
        """Forgets a message that was taken."""
        cdef Segment* segment = self.find(place.segment)
        cdef Block* tail = self.tail
        if segment == NULL:
            return 0
        self.total -= 1
        self.total_bytes -= place.length
        segment.settled += 1
        if tail != NULL and segment == tail.segment and place.position >= tail.start:
            tail.settled += 1
            if tail.settled == tail.count:
                self.drop_tail()
            elif self.durable:
                push_entry(&tail.pending, &tail.pending_count, &tail.pending_capacity, place.position,
                           place.length & ACK_VALUE_MASK)
        elif segment.sealed and segment.settled == segment.count:
            self.drop_segment(segment)
        elif self.durable:
            self.note(segment, place.position, place.length & ACK_VALUE_MASK)
        return 0

    cdef int drop_segment(self, Segment* segment) except -1:
        """Every record of a sealed segment is settled: it goes from memory and disk."""
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
        self.remove_segment(segment)
        return 0

    cdef int remove_segment(self, Segment* segment) except -1:
        """Removes the files, or waits until nothing is in flight on them."""
        cdef Round* round
        if (segment.messages != NULL and segment.messages.busy) or (segment.acks != NULL and segment.acks.busy):
            self.removing.append(<size_t> segment)
            self.persister.retries.append(self)
            return 0
        if segment.messages != NULL or segment.acks != NULL:
            round = round_new()
            # The messages go first: an acks file without its segment settles nothing.
            if segment.messages != NULL:
                self.persister.forget(segment.messages)
                self.persister.unsync(segment.messages)
                round_add(round, STAGE_REMOVE, OP_UNLINK, segment.messages)
            if segment.acks != NULL:
                self.persister.forget(segment.acks)
                self.persister.unsync(segment.acks)
                round_add(round, STAGE_REMOVE, OP_UNLINK, segment.acks)
            self.persister.remove(round)
        if self.read_segment == segment:
            self.read_segment = NULL
            self.read_length = 0
        segment_free(segment)
        return 0

    cdef int retry(self) except -1:
        self.remove_waiting()
        if self.deleted:
            self.finish_delete()
        return 0

    cdef int remove_waiting(self) except -1:
        cdef list addresses
        cdef size_t address
        if self.removing:
            addresses = self.removing
            self.removing = []
            for address in addresses:
                self.remove_segment(<Segment*> address)
        return 0

    cdef int requeue(self, Place* place) except -1:
        """Puts a message that was taken back at its original position."""
        cdef uint64_t key = <uint64_t> place.segment << 32 | place.position
        cdef uint32_t at, parent
        cdef Requeued* grown
        if self.heap_count == self.heap_capacity:
            at = self.heap_capacity * 2 if self.heap_capacity else 16
            grown = <Requeued*> realloc(self.heap, at * sizeof(Requeued))
            if grown == NULL:
                raise MemoryError("no memory for requeued messages")
            self.heap = grown
            self.heap_capacity = at
        at = self.heap_count
        self.heap_count += 1
        while at:
            parent = (at - 1) >> 1
            if self.heap[parent].key <= key:
                break
            self.heap[at] = self.heap[parent]
            at = parent
        self.heap[at].key = key
        self.heap[at].length = place.length
        self.ready += 1
        self.ready_bytes += place.length
        return 0

    cdef void heap_pop(self) noexcept:
        cdef Requeued last
        cdef uint32_t at = 0
        cdef uint32_t child
        self.heap_count -= 1
        if self.heap_count == 0:
            free(self.heap)
            self.heap = NULL
            self.heap_capacity = 0
            return
        last = self.heap[self.heap_count]
        while True:
            child = 2 * at + 1
            if child >= self.heap_count:
                break
            if child + 1 < self.heap_count and self.heap[child + 1].key < self.heap[child].key:
                child += 1
            if self.heap[child].key >= last.key:
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = last

    def purge(self) -> int:
        """Settles every ready message without reading it. Returns how many."""
        cdef uint64_t purged = self.ready
        cdef Segment* segment
        cdef Segment* following
        cdef Place place
        cdef uint64_t unread
        cdef uint32_t behind = 0
        while self.heap_count:
            place.segment = <uint32_t> (self.heap[0].key >> 32)
            place.position = <uint32_t> self.heap[0].key
            place.length = self.heap[0].length
            self.heap_pop()
            self.ready -= 1
            self.ready_bytes -= place.length
            self.settle(&place)
        if self.ready == 0:
            return purged
        # What is unread lies in the cursor's segment behind the cursor and in all later segments,
        # which hold nothing else.
        unread = self.ready
        self.total -= unread
        self.total_bytes -= self.ready_bytes
        self.ready = 0
        self.ready_bytes = 0
        segment = self.cursor
        following = segment.next
        while following != NULL:
            unread -= following.count - following.settled
            following.settled = following.count
            following = following.next
        segment.settled += <uint32_t> unread
        if unread and self.durable:
            if self.tail != NULL and self.tail.segment == segment and self.cursor_position >= self.tail.start:
                push_entry(&self.tail.pending, &self.tail.pending_count, &self.tail.pending_capacity, self.cursor_position,
                           (<uint32_t> ACK_RUN << 30) | (segment.length - self.cursor_position))
            else:
                self.note(segment, self.cursor_position, (<uint32_t> ACK_RUN << 30) | (segment.length - self.cursor_position))
        # Nothing is added to the purged segments any more; the next message opens a new one.
        if self.tail != NULL:
            if self.tail.length and not (self.tail.segment == self.active and self.active.settled == self.active.count):
                self.tail.state = FROZEN
                self.tail = NULL
            else:
                self.free_block(self.tail)
        if self.active != NULL:
            self.active.sealed = True
        self.cursor_position = segment.length
        self.cursor_skip = segment.skip_count
        while segment != NULL:
            following = segment.next
            if segment.settled == segment.count:
                self.drop_segment(segment)
            segment = following
        if self.active != NULL:
            self.roll()
        return purged

    # -- rounds ------------------------------------------------------------------------------------

    cdef bint has_work(self) noexcept:
        return self.first_pending != NULL or (self.tail != NULL and self.tail.length) or self.first_block != NULL

    cdef int ensure_directory(self, Round* round) except -1:
        cdef Op* op
        if not self.directory_made:
            self.directory_made = True
            encoded = os.fsencode(self.directory)
            op = round_add(round, STAGE_MAKE, OP_MKDIR, NULL)
            op.path = strdup(<char*> encoded)
            self.persister.note_directory(self.parent)
        return 0

    cdef File* ensure_file(self, Round* round, Segment* segment, bint acks) except NULL:
        cdef File* file = segment.acks if acks else segment.messages
        cdef Op* op
        if file == NULL:
            self.ensure_directory(round)
            file = file_new(f"{self.directory}/{'acks' if acks else 'msgs'}.{segment.number:010d}")
            if acks:
                segment.acks = file
            else:
                segment.messages = file
            if self.durable:
                self.persister.note_directory(self.directory)
            self.persister.use(round, file)
            op = round_add(round, STAGE_WRITE, OP_WRITE, file)
            op.data = &acks_header[0] if acks else &segment_header[0]
            op.length = HEADER_BYTES
            op.offset = 0
            if acks:
                segment.acks_length = HEADER_BYTES
        else:
            self.persister.use(round, file)
        return file

    cdef int freeze(self, Round* round) except -1:
        cdef Block* block
        cdef Segment* segment
        cdef Op* op
        cdef uint32_t i
        if self.deleted:
            return 0
        if self.tail != NULL and self.tail.length:
            self.tail.state = FROZEN
            self.tail = NULL
        # Acks and watermarks first: a record must not be found on disk without the mark that it may
        # have been delivered.
        block = self.first_block
        while block != NULL:
            if block.state == FROZEN:
                segment = block.segment
                for i in range(block.pending_count):
                    self.note(segment, block.pending[i].position, block.pending[i].word)
                free(block.pending)
                block.pending = NULL
                block.pending_count = block.pending_capacity = 0
                if self.durable and (self.keep or self.cursor_position > block.start and self.cursor == segment
                                     or self.cursor.number > segment.number):
                    if segment.watermark < block.start + block.length:
                        segment.watermark = block.start + <uint32_t> block.length + AHEAD
                        self.note(segment, segment.watermark, <uint32_t> ACK_WATERMARK << 30)
            block = block.next
        while self.first_pending != NULL:
            segment = self.first_pending
            self.first_pending = segment.next_pending
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
            op.incarnation = self.incarnation
            op.segment = segment.number
            segment.acks_length += segment.pending_count * ACK_BYTES
            segment.pending = NULL
            segment.pending_count = segment.pending_capacity = 0
            # A watermark has to be on disk with the records it speaks of; acks may be lost for 200 ms.
            self.persister.note_written(segment.acks, segment.watermark == segment.watermark_flying)
            segment.watermark_flying = segment.watermark
            self.persister.bytes_written += op.length
        block = self.first_block
        while block != NULL:
            if block.state == FROZEN:
                segment = block.segment
                self.ensure_file(round, segment, False)
                op = round_add(round, STAGE_WRITE, OP_WRITE_RECORDS, segment.messages)
                op.data = block.data
                op.length = block.length
                op.offset = block.start
                op.incarnation = self.incarnation
                op.segment = segment.number
                block.state = WRITING
                if self.durable:
                    self.persister.note_written(segment.messages, False)
                self.persister.bytes_written += op.length
            block = block.next
        # `note` listed the store again while it was being emptied.
        if self.dirty:
            self.dirty = False
            self.persister.dirty.remove(self)
        return 0

    cdef int written(self, Round* round) except -1:
        cdef Block* block = self.first_block
        cdef Block* next_block
        cdef Segment* segment = self.head
        while segment != NULL:
            segment.watermark_safe = segment.watermark_flying if segment.watermark_flying > segment.watermark_safe else segment.watermark_safe
            segment = segment.next
        while block != NULL:
            next_block = block.next
            if block.state == WRITING:
                block.state = WRITTEN
                if not (self.keep and block.segment == self.cursor
                        and block.start <= self.cursor_position < block.start + block.length):
                    self.free_block(block)
            block = next_block
        self.remove_waiting()
        if self.deleted:
            self.finish_delete()
            return 0
        if self.waiting_round:
            self.waiting_round = False
            self.owner_touch()
        return 0

    def rest(self) -> None:
        """The queue is idle: gives back its tail, its read buffer and, when it is empty, its
        files."""
        if self.tail != NULL and self.tail.length == 0:
            self.free_block(self.tail)
        if not self.reading:
            free(self.read_data)
            self.read_data = NULL
            self.read_capacity = self.read_length = 0
            self.read_segment = NULL
        if self.total == 0 and self.active != NULL and self.active.messages != NULL and self.first_block == NULL:
            self.active.sealed = True
            self.drop_segment(self.active)

    def settled_unwritten(self) -> bool:
        """Whether acks are not yet handed to the writing thread."""
        return self.first_pending != NULL

    @property
    def segments(self) -> int:
        cdef Segment* segment = self.head
        count = 0
        while segment != NULL:
            count += 1
            segment = segment.next
        return count

    @property
    def disk_bytes(self) -> int:
        """Bytes in the queue's files, as handed to the writer."""
        cdef Segment* segment = self.head
        cdef Block* block = self.first_block
        count = 0
        while segment != NULL:
            if segment.messages != NULL:
                count += segment.length
            count += segment.acks_length
            segment = segment.next
        while block != NULL:
            if block.state < WRITING and block.segment.messages != NULL:
                count -= block.length
            block = block.next
        return count

    def close(self) -> None:
        """Clean stop: the watermarks become exact, so that only what was delivered comes back as
        redelivered."""
        cdef Segment* segment = self.cursor
        cdef uint32_t exact = self.cursor_position
        while segment != NULL and self.durable:
            if exact < segment.recovered_watermark:
                exact = segment.recovered_watermark
            if segment.watermark > exact:
                segment.watermark = exact
                self.note(segment, exact, <uint32_t> ACK_WATERMARK << 30)
            exact = HEADER_BYTES
            segment = segment.next
        self.keep = False

    # -- end ---------------------------------------------------------------------------------------

    def delete(self) -> None:
        """The queue is gone: all it has in memory and on disk goes too."""
        cdef Block* block = self.first_block
        cdef Block* next_block
        self.deleted = True
        while block != NULL:
            next_block = block.next
            if block.state != WRITING:
                self.free_block(block)
            block = next_block
        self.ready = self.ready_bytes = self.total = self.total_bytes = 0
        self.finish_delete()

    cdef int finish_delete(self) except -1:
        cdef Segment* segment
        cdef Op* op
        cdef Round* round
        if self.first_block != NULL or self.reading:
            return 0
        self.first_pending = NULL
        while self.head != NULL:
            segment = self.head
            self.head = segment.next
            segment.next = NULL
            self.remove_segment(segment)
        self.active = self.cursor = self.last_found = self.read_segment = NULL
        if self.removing:
            return 0
        if self.directory_made:
            self.directory_made = False
            self.persister.forget_directory(self.directory)
            round = round_new()
            encoded = os.fsencode(self.directory)
            op = round_add(round, STAGE_REMOVE, OP_RMDIR, NULL)
            op.path = strdup(<char*> encoded)
            self.persister.remove(round)
        return 0
