# cython: language_level=3
"""One queue's messages in order: the next to deliver, those that came back, and what is settled.

Invariants:
- A queued message costs no memory once it is written. What is in memory is the unwritten tail,
  blocks that consumers are about to read, and one read buffer.
- Records are written in the order of their positions; a segment's tail is written whole or, when
  every record in it is settled, dropped whole, and then its positions were never on disk.
- `ready` counts what the cursor has not reached plus what was requeued; `total` counts what is not
  settled.
- A record that can be found on disk after a crash is delivered only when a watermark beyond it is
  written or travels in the same round, so that it comes back with redelivered set.
"""

import os

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from broker.kernel.message cimport BODY_IS_REFERENCE, Message, Place, WAS_DELIVERED
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.persister cimport Persister
from broker.store.files.disk cimport read_now
from broker.store.files.operation cimport OP_READ, Op
from broker.store.files.io_thread cimport Round, STAGE_WRITE, round_add, round_new
from broker.store.files.planted cimport planted
from broker.store.files.record cimport (
    ACK_DELIVERY_COUNT, ACK_RUN, ACK_VALUE_MASK, ACK_WATERMARK, HEADER_BYTES, RECORD_FIXED,
    RecordHead, record_bytes, record_check, record_fits, record_put, record_view,
)
from broker.store.log.queue_bodies cimport place_key
from broker.store.log.queue_damage cimport QueueDamage
from broker.store.log.segments cimport (
    Block, FROZEN, MIXED, Segment, TAIL_FULL, WRITING, WRITTEN, push_entry,
)

from broker.store.log.segments import not_needed

cdef enum:
    READ_AHEAD = 128 << 10

NO_END = <uint64_t> -1


cdef class QueueStore(QueueDamage):
    """The store of one queue."""

    def __init__(self, Persister persister, str parent, uint64_t incarnation, bint durable, touch,
                 BodyStore bodies=None):
        QueueDamage.__init__(self, persister, parent, incarnation, durable, touch)
        self.bodies = bodies

    def __dealloc__(self):
        free(self.read_data)

    cdef int append(self, Message* message) except -1:
        """Stores one message at the end."""
        cdef uint32_t length = record_bytes(message)
        cdef Segment* segment = self.active
        cdef Block* tail = self.tail
        if segment == NULL or (segment.count > 0 and
                               segment.length + <uint64_t> length > self.persister.segment_size):
            self.roll()
            segment = self.active
            tail = self.tail
        if tail == NULL or tail.length + length > tail.capacity or tail.length >= TAIL_FULL:
            tail = self.room_for(length)
        record_put(tail.data + tail.length, message)
        if tail.overhead != length - message.body_length:
            tail.overhead = length - message.body_length if tail.count == 0 else MIXED
        tail.body_bytes += message.body_length
        tail.flags |= message.flags
        tail.length += length
        tail.count += 1
        segment.length += length
        segment.count += 1
        self.ready += 1
        self.ready_bytes += message.body_length
        self.total += 1
        self.total_bytes += message.body_length
        self.persister.tail_bytes += length
        if message.flags & BODY_IS_REFERENCE:
            tail.overhead = MIXED
            self.refer(message, segment)
        if not self.dirty:
            self.persister.add(self)
        return 0

    # -- reading -----------------------------------------------------------------------------------

    cdef int peek(self, Message* message, Place* place) except -1:
        """Points at the next message to deliver. WAIT: the owner is touched when it can be had. The
        view ends with the next call."""
        cdef Segment* segment
        cdef Segment* following
        cdef uint32_t position
        if self.ready == 0:
            return EMPTY
        if self.requeued.count and (
                not planted(b"requeue at the end") or self.requeued.count == self.ready):
            self.requeued.first(place)
            return self.view(self.find(place.segment), place.position, message, place, True)
        segment = self.cursor
        position = self.cursor_position
        while True:
            while (self.cursor_skip < segment.skip_count
                   and segment.skips[self.cursor_skip].position == position):
                position += segment.skips[self.cursor_skip].length
                self.cursor_skip += 1
            if position < segment.length:
                break
            following = segment.next
            if following == NULL:
                self.cursor_position = position
                self.count_lost(segment)
                return EMPTY
            self.leave_segment(segment)
            segment = following
            position = HEADER_BYTES
            self.cursor = segment
            self.cursor_skip = 0
        self.cursor_position = position
        return self.view(segment, position, message, place, False)

    cdef int read(self, Place* place, Message* message) except -1:
        """Points at a message that was delivered and is not settled. WAIT: the owner is touched
        when it is read. EMPTY: its bytes are damaged and it is lost."""
        cdef Segment* segment = self.find(place.segment)
        cdef Block* block = self.block_of(segment, place.position)
        cdef uint8_t* record
        if block != NULL:
            record = block.data + (place.position - block.start)
        else:
            self.at_taken = True
            self.damaged = False
            record = self.read_record(segment, place.position)
            self.at_taken = False
            if record == NULL:
                return EMPTY if self.damaged else WAIT
        record_view(record, message)
        return FOUND

    # -- levels: a store without priorities has one, 0 ---------------------------------------------

    cdef int next_level(self, int above) noexcept:
        """The highest level below `above` with ready messages, or -1."""
        return 0 if above > 0 and self.ready else -1

    cdef int peek_at(self, int level, Message* message, Place* place) except -1:
        """As `peek`, for the first ready message of a level."""
        return self.peek(message, place)

    cdef int look_at(self, int level, Message* message) except -1:
        """As `peek_at`, but only for reading: leaves no mark that the message may have been
        delivered."""
        cdef Place place
        return self.read(&place, message) if self.first_place(&place) else EMPTY

    cdef bint first_place(self, Place* place) noexcept:
        """Segment and position of the next message to deliver; False without any. Has no side
        effects."""
        cdef Segment* segment = self.cursor
        cdef uint32_t position = self.cursor_position
        cdef uint32_t skip = self.cursor_skip
        if self.ready == 0:
            return False
        if self.requeued.count:
            self.requeued.first(place)
            return True
        while segment != NULL:
            while (skip < segment.skip_count
                   and segment.skips[skip].position == position):
                position += segment.skips[skip].length
                skip += 1
            if position < segment.length:
                place.segment = segment.number
                place.position = position
                return True
            segment = segment.next
            position = HEADER_BYTES
            skip = 0
        return False

    cdef int peek_least(self, Message* message, Place* place) except -1:
        """As `peek`, for the message that can be spared first."""
        return self.peek(message, place)

    cdef int64_t deadline_at(self, int level, int64_t queue_ttl) noexcept:
        """When the first ready message of a level expires (ms), if that is known; else 0."""
        return 0

    cdef void note_deadline(self, int level, int64_t queue_ttl, int64_t deadline) noexcept:
        """The first ready message of a level expires then."""

    cdef uint32_t unused_number(self) noexcept:
        """From this segment number on none was ever given, for the queue's next store."""
        return self.next_number

    cdef void go_on_from(self, uint32_t number) noexcept:
        """An earlier store of the queue gave the numbers below."""
        if number > self.next_number:
            self.next_number = number

    cdef QueueStore part(self, uint32_t segment):
        """The store that recovery fills with a segment of this number; None if no store of this
        queue wrote it."""
        return self

    cdef int recovered(self) except -1:
        """Every segment is found again."""
        return 0

    # -- from memory or disk -----------------------------------------------------------------------

    cdef int leave_segment(self, Segment* segment) except -1:
        """The cursor moves to the next segment: the skipped spans are not needed any more."""
        free(segment.skips)
        segment.skips = NULL
        segment.skip_count = 0
        if segment.settled_bytes >= segment.punch_at:
            self.persister.background.attend(self)
        self.count_lost(segment)
        return 0

    cdef int view(self, Segment* segment, uint32_t position, Message* message, Place* place,
                  bint redelivered) except -1:
        cdef Block* block = self.block_of(segment, position)
        cdef uint8_t* record
        cdef RecordHead* head
        if block != NULL:
            if self.durable and block.state >= WRITING:
                # One that is only noted travels in a later round than the records.
                if position >= (segment.watermark_flying if block.state == WRITING
                                else segment.watermark_safe):
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
        place.body_length = message.body_length
        place.redelivered = (redelivered or position < segment.recovered_watermark
                             or (message.flags & WAS_DELIVERED) != 0)
        if message.flags & BODY_IS_REFERENCE:
            self.seen = place_key(place)
            memcpy(self.seen_id, message.reference, 16)
        elif self.references:
            self.seen = 0
        return FOUND

    cdef int want_watermark(self, Segment* segment) except -1:
        """Messages of this segment must not be delivered from disk before a watermark beyond it is
        written: requests the next round."""
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
        cdef uint32_t end
        cdef RecordHead* head
        cdef uint8_t* record
        if self.reading:
            return NULL
        if self.read_segment == segment and position >= self.read_position:
            offset = position - self.read_position
            have = self.read_length - offset if offset < self.read_length else 0
            record = self.read_data + offset
            head = <RecordHead*> record
            end = self.written_end(segment, position)
            if have < RECORD_FIXED and not self.read_short and position + have < end:
                pass
            elif (have >= RECORD_FIXED and <size_t> head.length + 4 > have and not self.read_short
                    and position + <uint64_t> head.length + 4 <= end):
                wanted = <size_t> head.length + 4
                if wanted < READ_AHEAD:
                    wanted = READ_AHEAD
            elif record_fits(record, have) and (head.check == record_check(
                    record, self.incarnation, segment.number, position)
                    or planted(b"no check")):
                return record
            else:
                self.pass_over(segment, position, record, have)
                return NULL
        self.fetch(segment, position, wanted)
        if self.reading:
            return NULL
        return self.read_record(segment, position)

    cdef int fetch(self, Segment* segment, uint32_t position, size_t wanted) except -1:
        """Fills the read buffer from `position`: at once if the page cache has it, else by the
        reader thread."""
        cdef Round* round
        cdef Op* op
        cdef uint8_t* grown
        cdef ssize_t got
        cdef uint32_t end = self.written_end(segment, position)
        if wanted > end - position:
            wanted = end - position
        if wanted > self.read_capacity or self.read_capacity > 2 * wanted + READ_AHEAD:
            grown = <uint8_t*> realloc(self.read_data, wanted)
            if grown == NULL:
                raise MemoryError("no memory for a read buffer")
            self.read_data = grown
            self.read_capacity = wanted
        self.read_segment = segment
        self.read_position = position
        self.read_length = 0
        self.read_short = False
        self.persister.segment_reads += 1
        if segment.messages.fd >= 0 and segment.messages.listed:
            got = read_now(segment.messages.fd, self.read_data, wanted, position)
            if got > 0 and (<size_t> got == wanted or record_fits(self.read_data, got)):
                self.read_length = got
                return 0
        round = round_new()
        self.persister.files.use(round, segment.messages)
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
        self.read_short = op.done < op.length
        if round.error:
            self.read_length = 0
            self.read_segment = NULL
            self.persister.failed_reads.add(
                f"messages in {self.directory}", os.strerror(round.error), self.owner_touch)
        self.remove_waiting()
        if self.deleted:
            self.finish_delete()
        elif not round.error:
            self.owner_touch()
        return 0

    cdef void segment_gone(self, Segment* segment) noexcept:
        if self.read_segment == segment:
            self.read_segment = NULL
            self.read_length = 0

    cdef int advance(self, Place* place) except -1:
        """The message that `peek` showed is taken."""
        cdef Block* block
        if self.requeued.first_is(place.segment, place.position):
            self.requeued.pop()
        else:
            self.cursor_position = place.position + place.length
            self.cursor.passed += 1
            block = self.first_block
            if block != NULL and block.state == WRITTEN:
                if (block.segment != self.cursor
                        or self.cursor_position >= block.start + block.length):
                    self.free_block(block)
        self.ready -= 1
        self.ready_bytes -= place.body_length
        if self.references:
            self.note_taken(place)
        return 0

    cdef int resolve(self, Message* message, Place* place) except -1:
        """`find_body` for the message that `peek` showed. EMPTY: it is dropped, and the next one
        can be asked for."""
        cdef int found = self.find_body(message)
        if found == EMPTY:
            self.advance(place)
            self.settle(place)
        return found

    # -- settling ----------------------------------------------------------------------------------

    cdef int settle(self, Place* place) except -1:
        """Forgets a message that was taken."""
        cdef Segment* segment = self.find(place.segment)
        cdef Block* tail = self.tail
        if segment == NULL:
            return 0
        if self.returns is not None:
            self.returns.pop(<uint64_t> place.segment << 32 | place.position, None)
        self.total -= 1
        self.total_bytes -= place.body_length
        segment.settled += 1
        segment.settled_bytes += place.length
        if self.references:
            self.drop_taken(place)
        if tail != NULL and segment == tail.segment and place.position >= tail.start:
            tail.settled += 1
            if tail.settled == tail.count:
                self.drop_tail()
            elif self.durable:
                push_entry(&tail.pending, &tail.pending_count, &tail.pending_capacity,
                           place.position, place.length & ACK_VALUE_MASK)
        elif segment.sealed and segment.settled == segment.count:
            self.drop_segment(segment)
        elif self.durable:
            self.note(segment, place.position, place.length & ACK_VALUE_MASK)
            if segment.sealed and segment.settled_bytes >= segment.punch_at:
                self.persister.background.attend(self)
        return 0

    cdef int requeue(self, Place* place) except -1:
        """Puts a message that was taken back at its original position."""
        self.requeued.push(place)
        self.ready += 1
        self.ready_bytes += place.body_length
        return 0

    cdef uint64_t end(self) noexcept:
        """A mark behind the last message of now, for `is_behind`."""
        if self.active == NULL:
            return <uint64_t> self.next_number << 32
        return <uint64_t> self.active.number << 32 | <uint32_t> self.active.length

    cdef bint is_behind(self, Place* place, uint64_t end) noexcept:
        """Whether a message came after a mark."""
        return (<uint64_t> place.segment << 32 | place.position) >= end

    # -- how often a message came back -------------------------------------------------------------

    cdef uint32_t count_return(self, Place* place) except? 0:
        """A message came back once more; how often it has by now. Survives a restart."""
        cdef uint64_t key = <uint64_t> place.segment << 32 | place.position
        cdef Segment* segment = self.find(place.segment)
        cdef Block* tail = self.tail
        cdef uint32_t count, word
        if self.returns is None:
            self.returns = {}
        count = self.returns.get(key, 0) + 1
        self.returns[key] = count
        if self.durable:
            word = <uint32_t> ACK_DELIVERY_COUNT << 30 | count
            if tail != NULL and segment == tail.segment and place.position >= tail.start:
                push_entry(&tail.pending, &tail.pending_count, &tail.pending_capacity,
                           place.position, word)
            else:
                self.note(segment, place.position, word)
        return count

    cdef uint32_t returns_of(self, Place* place) except? 0:
        if self.returns is None:
            return 0
        return self.returns.get(<uint64_t> place.segment << 32 | place.position, 0)

    def purge_part(self, uint32_t most) -> int:
        """Settles so many of the messages that came back, or all: a million take 110 ms. Returns
        how many."""
        cdef Place place
        cdef uint32_t purged = 0
        while self.requeued.count and purged < most:
            self.requeued.first(&place)
            self.requeued.pop()
            self.ready -= 1
            self.ready_bytes -= place.body_length
            self.settle(&place)
            purged += 1
        return purged

    def purge(self) -> int:
        """Settles every ready message without reading it. Returns how many."""
        cdef uint64_t purged = self.ready
        cdef Segment* segment
        cdef Segment* following
        cdef uint64_t unread
        cdef uint32_t run
        self.purge_part(self.requeued.count)
        if self.ready == 0:
            return purged
        if self.references:
            self.release_unread()
        # Unread messages are in the cursor's segment behind the cursor, and in all later segments,
        # which hold only those.
        unread = self.ready
        self.total -= unread
        self.total_bytes -= self.ready_bytes
        self.ready = 0
        self.ready_bytes = 0
        segment = self.cursor
        following = segment.next
        while following != NULL:
            unread -= following.count - following.settled
            following.settled = following.passed = following.count
            following.settled_bytes = following.length - HEADER_BYTES
            following = following.next
        segment.settled += <uint32_t> unread
        segment.passed = segment.count
        segment.settled_bytes += segment.length - self.cursor_position
        if unread and self.durable:
            run = (<uint32_t> ACK_RUN << 30) | (segment.length - self.cursor_position)
            if (self.tail != NULL and self.tail.segment == segment
                    and self.cursor_position >= self.tail.start):
                push_entry(&self.tail.pending, &self.tail.pending_count,
                           &self.tail.pending_capacity, self.cursor_position, run)
            else:
                self.note(segment, self.cursor_position, run)
        # The purged segments are closed; the next message opens a new one.
        if self.tail != NULL:
            if self.tail.length and not (self.tail.segment == self.active
                                         and self.active.settled == self.active.count):
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

    # -- rest and end ------------------------------------------------------------------------------

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
        if self.body is not None:
            self.body.rest()
        if (self.total == 0 and self.active != NULL and self.active.messages != NULL
                and self.first_block == NULL):
            self.active.sealed = True
            self.drop_segment(self.active)

    cdef int mark_exactly(self) except -1:
        """The watermarks say what was delivered up to now, and no more: what a later delivery
        needs is written again."""
        cdef Segment* segment = self.cursor
        cdef uint32_t exact = self.cursor_position
        while segment != NULL and self.durable:
            if exact < segment.recovered_watermark:
                exact = segment.recovered_watermark
            if segment.watermark > exact:
                segment.watermark = exact
                self.note(segment, exact, <uint32_t> ACK_WATERMARK << 30)
                if segment.watermark_flying > exact:
                    segment.watermark_flying = exact
                if segment.watermark_safe > exact:
                    segment.watermark_safe = exact
            exact = HEADER_BYTES
            segment = segment.next
        return 0

    def close(self) -> None:
        """Clean stop: the watermarks become exact, so that only what was delivered comes back as
        redelivered. What is still in memory gets an exact one when it is written."""
        self.mark_exactly()
        self.keep = False
        self.closing = True

    def delete(self) -> None:
        """The queue is deleted: frees its memory and removes its files."""
        cdef Block* block = self.first_block
        cdef Block* next_block
        self.deleted = True
        if self.references:
            self.release_unread()
            self.release_taken()
        while block != NULL:
            next_block = block.next
            if block.state != WRITING:
                self.free_block(block)
            block = next_block
        self.ready = self.ready_bytes = self.total = self.total_bytes = 0
        if self.body is not None:
            self.body.wake = not_needed  # the queue's method, as `owner_touch`
        self.finish_delete()
