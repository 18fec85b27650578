# cython: language_level=3
"""One queue's messages in order: the next to deliver, those that came back, and what is settled.

Invariants:
- A ready message that was never delivered costs no memory once it is written, unless a consumer
  is about to read it. What is in memory is the unwritten tail, blocks that consumers are about to
  read, and one read buffer; and an entry for each message that came back.
- Records are written in the order of their positions; a segment's tail is written whole or, when
  every record in it is settled, dropped whole, and then its positions were never on disk.
- `ready` counts what the cursor has not reached plus what was requeued; `total` counts what is not
  settled.
- A watermark is an entry in a segment's acks file: records below it may have been delivered. A
  record that may be on disk after a crash is delivered only when a watermark above it is written
  or is part of the same round, so that it comes back with redelivered set.
"""

import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from broker.kernel.message cimport BODY_IS_REFERENCE, Message, Place, WAS_DELIVERED
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.tail_memory cimport TAIL_FULL
from broker.store.files.io_thread cimport Round
from broker.store.files.planted cimport planted
from broker.store.files.record cimport (
    ACK_DELIVERY_COUNT, ACK_RUN, ACK_VALUE_MASK, ACK_WATERMARK, HEADER_BYTES, RECORD_FIXED,
    RecordHead, record_bytes, record_put, record_view,
)
from broker.store.log.contracts cimport MessageStore
from broker.store.log.damage cimport Damage
from broker.store.log.read_buffer cimport NOT_READ, ReadBuffer, UNSOUND
from broker.store.log.requeued cimport Requeued
from broker.store.log.sealed cimport Sealed, punch_when
from broker.store.log.segments cimport (
    Block, FROZEN, MIXED, QueueDirectory, Segment, Segments, WRITING, WRITTEN, block_view,
    push_entry, push_settled,
)
from broker.store.log.shared_refs cimport SharedRefs, place_key

from broker.store.log.segments import not_needed

cdef enum:
    RUN_BYTES = 64 << 10         # of records that are looked at together, but for the last one


# Of all stores to which no message came back.
cdef Requeued NONE_CAME_BACK = Requeued()


cdef class QueueStore(MessageStore):
    """The store of one queue, or of one level of its priorities."""

    def __init__(self, QueueDirectory folder, bint durable, touch, BodyStore bodies=None,
                 uint32_t first_number=1, uint32_t numbers_behind=0xFFFFFFFE):
        self.persister = folder.persister
        self.folder = folder
        self.durable = durable
        self.touch = touch
        self.refs = SharedRefs(bodies)
        self.segments = Segments(folder, durable, first_number, numbers_behind)
        self.segments.extends = durable
        self.requeued = NONE_CAME_BACK

    # Of 100,000 queues that get a message each, most never need these parts.

    cdef ReadBuffer reading(self):
        """The buffer for what is read back."""
        if self.buffer is None:
            self.buffer = ReadBuffer(self.segments)
        return self.buffer

    cdef Sealed sealing(self):
        """The background work for full segments."""
        if self.sealed is None:
            self.sealed = Sealed(self.segments)
        return self.sealed

    cdef Damage damaged(self):
        """What is unreadable."""
        if self.damage is None:
            self.damage = Damage(self.segments)
        return self.damage

    cdef int append(self, Message* message) except -1:
        cdef uint32_t length = record_bytes(message)
        cdef Segments segments = self.segments
        cdef Segment* segment = segments.active
        cdef Block* tail = segments.tail
        if segment == NULL or (segment.count > 0 and
                               segment.length + <uint64_t> length > self.persister.segment_size):
            self.roll()
            segment = segments.active
            tail = segments.tail
        if message.large != NULL and not message.flags & BODY_IS_REFERENCE:
            tail = segments.new_large(message, NULL, 0)
        else:
            if tail == NULL or tail.length + length > tail.capacity or tail.length >= TAIL_FULL:
                tail = segments.room_for(length)
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
        if tail.large == NULL:
            self.persister.tail_bytes += length
        if message.flags & BODY_IS_REFERENCE:
            tail.overhead = MIXED
            tail.referring += 1
            segment.references += 1
            segment.referring += 1
            self.refs.refer(message, self.durable)
        if not self.dirty:
            self.persister.add(self)
        return 0

    cdef int append_run(self, const Message* messages, uint32_t count) except -1:
        cdef uint32_t done = self.fill(messages, count)
        while done < count:
            # There has to be a tail, a longer one, or another segment.
            self.append(<Message*> &messages[done])
            done += 1
            done += self.fill(messages + done, count - done)
        return 0

    cdef uint32_t fill(self, const Message* messages, uint32_t count) noexcept:
        """Stores the first of several messages, as many of them as the tail has room for. Returns
        how many."""
        cdef Segment* segment = self.segments.active
        cdef Block* tail = self.segments.tail
        cdef size_t room, at, length
        cdef uint64_t size = 0
        cdef uint32_t done = 0
        if (not self.dirty or segment == NULL or tail == NULL
                or segment.length >= self.persister.segment_size):
            return 0
        at = tail.length
        room = min(tail.capacity, at + self.persister.segment_size - segment.length)
        while done < count and at < TAIL_FULL:
            length = record_bytes(&messages[done])
            if at + length > room:
                break
            record_put(tail.data + at, &messages[done])
            if tail.overhead != length - messages[done].body_length:
                tail.overhead = (
                    length - messages[done].body_length if tail.count + done == 0 else MIXED)
            size += messages[done].body_length
            at += length
            done += 1
        if done:
            tail.flags |= messages[0].flags
        tail.body_bytes += size
        tail.count += done
        segment.length += at - tail.length
        segment.count += done
        self.persister.tail_bytes += at - tail.length
        tail.length = at
        self.ready += done
        self.ready_bytes += size
        self.total += done
        self.total_bytes += size
        return done

    cdef int roll(self) except -1:
        """Seals the active segment and begins the next one."""
        cdef Segment* old = self.segments.active
        if old != NULL:
            old.punch_at = punch_when(old)
            self.persister.background.attend(self)
        elif self.segments.head == NULL and planted(b"reuse numbers"):
            self.segments.next_number = self.segments.first_number
        self.segments.roll()
        if old != NULL and old.settled == old.count:
            self.drop_segment(old)
        elif old != NULL and old.messages != NULL and old.messages.ahead and not self.dirty:
            self.persister.add(self)
        return 0

    cdef int note(self, Segment* segment, uint32_t position, uint32_t word) except -1:
        """An entry for the segment's acks file, written with the next round."""
        self.segments.note(segment, position, word)
        if not self.dirty:
            self.persister.add(self)
        return 0

    cdef int note_at(self, Segment* segment, uint32_t position, uint32_t word) except -1:
        """As `note`. For a record that no round has taken yet the entry stays with its block: it is
        written with the record, or dropped with it, and in the order of such entries, of which the
        last counts."""
        cdef Block* block = self.segments.block_of(segment, position)
        if block != NULL and block.state < WRITING:
            push_entry(&block.pending, &block.pending_count, &block.pending_capacity, position,
                       word)
            return 0
        return self.note(segment, position, word)

    # -- reading -----------------------------------------------------------------------------------

    cdef int peek(self, Message* message, Place* place) except -1:
        cdef Segments segments = self.segments
        cdef Segment* segment
        cdef Segment* following
        cdef uint32_t position
        if self.ready == 0:
            return EMPTY
        if self.requeued.count and (
                not planted(b"requeue at the end") or self.requeued.count == self.ready):
            self.requeued.first(place)
            return self.view(segments.find(place.segment), place.position, message, place, True)
        segment = segments.cursor
        position = segments.cursor_position
        while True:
            while (segments.cursor_skip < segment.skip_count
                   and segment.skips[segments.cursor_skip].position == position):
                position += segment.skips[segments.cursor_skip].length
                segments.cursor_skip += 1
            if position < segment.length:
                break
            following = segment.next
            if following == NULL:
                segments.cursor_position = position
                self.count_lost(segment)
                return EMPTY
            self.leave_segment(segment)
            segment = following
            position = HEADER_BYTES
            segments.cursor = segment
            segments.cursor_skip = 0
        segments.cursor_position = position
        return self.view(segment, position, message, place, False)

    cdef uint32_t peek_run(self, Message* messages, Place* places, uint32_t most) noexcept:
        cdef Segments segments = self.segments
        cdef Segment* segment = segments.cursor
        cdef uint32_t position = segments.cursor_position
        cdef Block* block
        cdef uint8_t* record
        cdef uint32_t end
        cdef uint32_t found = 0
        if (self.ready == 0 or self.requeued.count or self.refs.count or segment == NULL
                or segments.cursor_skip < segment.skip_count
                or position < segment.recovered_watermark):
            return 0
        block = segments.block_of(segment, position)
        if block == NULL or block.large != NULL:
            return 0
        record = block.data + (position - block.start)
        end = block.start + <uint32_t> block.length
        if self.durable and block.state >= WRITING:
            # As in `view`: what lies behind the watermark has to wait.
            end = min(end, segment.watermark_flying if block.state == WRITING
                      else segment.watermark_safe)
        end = min(end, position + RUN_BYTES)
        while found < most and position < end:
            record_view(record, &messages[found])
            if messages[found].flags & (BODY_IS_REFERENCE | WAS_DELIVERED):
                break
            places[found].segment = segment.number
            places[found].position = position
            places[found].length = (<RecordHead*> record).length + 4
            places[found].body_length = messages[found].body_length
            places[found].redelivered = 0
            position += places[found].length
            record += places[found].length
            found += 1
        return found

    cdef int read(self, Place* place, Message* message) except -1:
        cdef Segment* segment = self.segments.find(place.segment)
        cdef Block* block = self.segments.block_of(segment, place.position)
        cdef uint8_t* record
        cdef size_t have
        cdef int found
        if block != NULL:
            block_view(block, block.data + (place.position - block.start), message)
        else:
            found = self.reading().find(segment, place.position, self, &record, &have)
            if found == NOT_READ:
                return WAIT
            if found == UNSOUND:
                if have >= RECORD_FIXED and <size_t> (<RecordHead*> record).length + 4 < have:
                    have = <size_t> (<RecordHead*> record).length + 4
                self.damaged().keep(segment.number, place.position, record, have, have)
                return EMPTY
            self.buffer.view(record, message)
        return FOUND

    # -- levels: this store is the only one --------------------------------------------------------

    cdef int next_level(self, int above) noexcept:
        return 0 if above > 0 and self.ready else -1

    cdef int peek_at(self, int level, Message* message, Place* place) except -1:
        return self.peek(message, place)

    cdef int look_at(self, int level, Message* message) except -1:
        cdef Place place
        return self.read(&place, message) if self.first_place(&place) else EMPTY

    cdef bint first_place(self, Place* place) noexcept:
        cdef Segment* segment = self.segments.cursor
        cdef uint32_t position = self.segments.cursor_position
        cdef uint32_t skip = self.segments.cursor_skip
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
        return self.peek(message, place)

    cdef list parts(self):
        return [self]

    cdef MessageStore part(self, int level):
        return self

    cdef MessageStore part_of(self, uint32_t segment):
        return self

    cdef MessageStore part_for(self, Message* message):
        return self

    cdef uint32_t unused_number(self) noexcept:
        return self.segments.next_number

    cdef void go_on_from(self, uint32_t number) noexcept:
        if number > self.segments.next_number:
            self.segments.next_number = number

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

    cdef int drop_segment(self, Segment* segment) except -1:
        """All records of a sealed segment are settled: removes it from memory and disk."""
        if self.buffer is not None:
            self.buffer.forget(segment)
        return self.segments.drop(segment, self)

    cdef int view(self, Segment* segment, uint32_t position, Message* message, Place* place,
                  bint redelivered) except -1:
        cdef Block* block = self.segments.block_of(segment, position)
        cdef uint8_t* record
        cdef RecordHead* head
        cdef size_t have
        cdef int found
        if block != NULL:
            if self.durable and block.state >= WRITING:
                # A watermark that is only noted is written in a later round than the records.
                if position >= (segment.watermark_flying if block.state == WRITING
                                else segment.watermark_safe):
                    return self.want_watermark(segment)
            record = block.data + (position - block.start)
            block_view(block, record, message)
        else:
            if self.durable and position >= segment.watermark_safe:
                return self.want_watermark(segment)
            found = self.reading().find(segment, position, self, &record, &have)
            if found == UNSOUND:
                self.pass_over(segment, position, record, have)
                return WAIT
            if found == NOT_READ:
                return WAIT
            self.buffer.view(record, message)
        head = <RecordHead*> record
        place.segment = segment.number
        place.position = position
        place.length = head.length + 4
        place.body_length = message.body_length
        place.redelivered = (redelivered or position < segment.recovered_watermark
                             or (message.flags & WAS_DELIVERED) != 0)
        if message.flags & BODY_IS_REFERENCE or self.refs.count:
            self.refs.show(place, message)
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

    cdef int read_done(self, Round* round) except -1:
        if self.reading().done(round):
            self.persister.failed_reads.add(
                f"messages in {self.folder.path}", os.strerror(round.error), self.touch)
        self.files_free()
        if not self.deleted and not round.error:
            self.touch()
        return 0

    cdef int advance(self, Place* place) except -1:
        cdef Segments segments = self.segments
        cdef Block* block
        if self.requeued.first_is(place.segment, place.position):
            self.requeued.pop()
        else:
            segments.cursor_position = place.position + place.length
            segments.cursor.passed += 1
            block = segments.first_block
            if block != NULL and block.state == WRITTEN:
                if (block.segment != segments.cursor
                        or segments.cursor_position >= block.start + block.length):
                    segments.free_block(block)
        # As `pick`, which would be one call more for every message.
        self.ready -= 1
        self.ready_bytes -= place.body_length
        if self.refs.count:
            self.refs.take(place, segments)
        return 0

    cdef int advance_run(self, const Place* places, uint32_t count, uint64_t size) except -1:
        cdef Segments segments = self.segments
        cdef Block* block = segments.first_block
        segments.cursor_position = places[count - 1].position + places[count - 1].length
        segments.cursor.passed += count
        if block != NULL and block.state == WRITTEN:
            if (block.segment != segments.cursor
                    or segments.cursor_position >= block.start + block.length):
                segments.free_block(block)
        self.ready -= count
        self.ready_bytes -= size
        return 0

    cdef int pick(self, Place* place) except -1:
        """A message is taken by its place, wherever it stands."""
        self.ready -= 1
        self.ready_bytes -= place.body_length
        if self.refs.count:
            self.refs.take(place, self.segments)
        return 0

    cdef int put_back(self, Place* place, Segment* segment) except -1:
        """Undoes `pick` for a message that the cursor has not reached: it is unread again."""
        self.refs.put_back(place, segment)
        segment.passed -= 1
        self.ready += 1
        self.ready_bytes += place.body_length
        return 0

    # -- damage ------------------------------------------------------------------------------------

    cdef int pass_over(self, Segment* segment, uint32_t position, uint8_t* record,
                       size_t have) except -1:
        """The next record is damaged. If it was requeued, it is lost; damage at the cursor is
        copied to quarantine up to the next sound record, and is settled."""
        cdef Place place
        if not self.requeued.first_is(segment.number, position):
            if not self.damaged().is_found(segment.number, position):
                return self.search_behind(segment, position)
            return self.pass_gap(segment, position)
        segment.damaged = True
        self.requeued.first(&place)
        self.requeued.pop()
        self.ready -= 1
        self.ready_bytes -= place.body_length
        if self.lost is None:
            self.lost = []
        self.lost.append(place_key(&place))
        self.damaged().keep(segment.number, position, record,
                            place.length if place.length < have else have, place.length)
        self.settle(&place)
        self.touch()
        return 0

    cdef int search_behind(self, Segment* segment, uint32_t position) except -1:
        """A thread looks for the next sound record behind damage at the cursor, up to the next
        settled one or the next in memory. Then the owner is touched."""
        cdef uint32_t skip = self.segments.cursor_skip
        cdef uint32_t end = self.segments.written_end(segment, position)
        cdef uint32_t limit = end
        if skip < segment.skip_count and segment.skips[skip].position < limit:
            limit = segment.skips[skip].position
        self.reading().busy = True
        return self.damaged().search(segment.number, position, limit, end, self.searched)

    def searched(self, uint32_t number, uint32_t position, result, error):
        """The thread of `search_behind` is done."""
        self.reading().busy = False
        if error is None:
            self.damaged().found(number, position, result)
        elif self.segments.find(number) != NULL:
            self.persister.failed_reads.add(
                f"messages in {self.folder.path}", str(error), self.touch)
        self.files_free()
        if not self.deleted and error is None:
            self.touch()

    cdef int pass_gap(self, Segment* segment, uint32_t position) except -1:
        """The cursor continues behind the searched part."""
        cdef uint32_t body
        cdef uint32_t length = self.damaged().take(&body)
        self.touch()
        if length == 0:
            # It was sound when it was read again.
            self.reading().empty()
            return 0
        segment.damaged = True
        self.segments.cursor_position = position + length
        segment.settled_bytes += length
        if segment.references:
            self.refs.bodies.doubt()
        if self.durable:
            self.note(segment, position, length & ACK_VALUE_MASK)
        # One record at least began here. Others are found missing at the segment's end.
        segment.count -= 1
        self.ready -= 1
        self.total -= 1
        self.ready_bytes -= body if body < self.ready_bytes else self.ready_bytes
        self.total_bytes -= body if body < self.total_bytes else self.total_bytes
        return 0

    cdef int count_lost(self, Segment* segment) except -1:
        """The cursor is at the end of a segment. Records that it did not come by lay in stretches
        that could not be read: they are no longer counted."""
        cdef uint32_t lost = 0
        if segment.passed < segment.count:
            lost = segment.count - segment.passed
        elif not segment.damaged:
            return 0
        segment.count -= lost
        self.ready -= lost if lost < self.ready else self.ready
        self.total -= lost if lost < self.total else self.total
        if self.ready == 0:
            self.total_bytes -= self.ready_bytes
            self.ready_bytes = 0
        if segment.sealed and segment.settled == segment.count:
            self.drop_segment(segment)
        return 0

    # -- settling ----------------------------------------------------------------------------------

    cdef int settle(self, Place* place) except -1:
        cdef Segments segments = self.segments
        cdef Segment* segment = segments.find(place.segment)
        cdef Block* tail = segments.tail
        if segment == NULL:
            return 0
        if self.returns is not None:
            self.returns.pop(place_key(place), None)
        self.total -= 1
        self.total_bytes -= place.body_length
        segment.settled += 1
        segment.settled_bytes += place.length
        if self.refs.count:
            self.refs.drop(place)
        if tail != NULL and segment == tail.segment and place.position >= tail.start:
            tail.settled += 1
            if tail.settled == tail.count:
                segments.drop_tail()
            elif self.durable:
                push_entry(&tail.pending, &tail.pending_count, &tail.pending_capacity,
                           place.position, place.length & ACK_VALUE_MASK)
        elif segment.sealed and segment.settled == segment.count:
            self.drop_segment(segment)
        elif self.durable:
            segments.note(segment, place.position, place.length & ACK_VALUE_MASK)
            if not self.dirty:
                self.persister.add(self)
            if segment.sealed and segment.settled_bytes >= segment.punch_at:
                self.persister.background.attend(self)
        return 0

    cdef int settle_run(self, Place* places, uint32_t count) except -1:
        cdef Segments segments = self.segments
        cdef Segment* segment = segments.find(places[0].segment)
        cdef Block* tail = segments.tail
        cdef uint32_t i
        cdef uint32_t in_tail = 0
        cdef uint64_t size = 0
        cdef uint64_t length = 0
        if segment == NULL:
            return 0
        if tail != NULL and segment != tail.segment:
            tail = NULL
        for i in range(count):
            in_tail += tail != NULL and places[i].position >= tail.start
            size += places[i].body_length
            length += places[i].length
        if self.returns is not None or self.refs.count or (in_tail and in_tail < count):
            for i in range(count):
                self.settle(&places[i])
            return 0
        # What may fail comes first: then nothing has changed.
        if not in_tail:
            self.note_run(segment, places, count)
        elif self.durable and tail.settled + count < tail.count:
            push_settled(&tail.pending, &tail.pending_count, &tail.pending_capacity, places, count)
        self.total -= count
        self.total_bytes -= size
        segment.settled += count
        segment.settled_bytes += length
        if in_tail:
            tail.settled += count
            if tail.settled == tail.count:
                segments.drop_tail()
        elif segment.sealed and segment.settled == segment.count:
            self.drop_segment(segment)
        elif self.durable and segment.sealed and segment.settled_bytes >= segment.punch_at:
            self.persister.background.attend(self)
        return 0

    cdef int note_run(self, Segment* segment, const Place* places, uint32_t count) except -1:
        """Adds entries to the acks of a segment for these messages, which are not in the tail and
        will be settled. None are needed where the whole segment is about to go."""
        if not self.durable or segment.sealed and segment.settled + count == segment.count:
            return 0
        if not self.dirty:
            self.persister.add(self)
        push_settled(
            &segment.pending, &segment.pending_count, &segment.pending_capacity, places, count)
        return self.segments.list_pending(segment)

    cdef int requeue(self, Place* place) except -1:
        if self.requeued is NONE_CAME_BACK:
            self.requeued = Requeued()
        self.requeued.push(place)
        self.ready += 1
        self.ready_bytes += place.body_length
        return 0

    cdef uint64_t end(self) noexcept:
        cdef Segment* active = self.segments.active
        if active == NULL:
            return <uint64_t> self.segments.next_number << 32
        return <uint64_t> active.number << 32 | active.length

    cdef bint is_behind(self, Place* place, uint64_t end) noexcept:
        return place_key(place) >= end

    # -- how often a message came back -------------------------------------------------------------

    cdef uint32_t count_return(self, Place* place) except? 0:
        cdef uint32_t count = self.returns_of(place) + 1
        self.note_returns(place.segment, place.position, count)
        return count

    cdef int note_returns(self, uint32_t segment, uint32_t position, uint32_t count) except -1:
        """The message at this place came back so often."""
        if self.returns is None:
            self.returns = {}
        self.returns[<uint64_t> segment << 32 | position] = count
        if self.durable:
            self.note_at(self.segments.find(segment), position,
                         <uint32_t> ACK_DELIVERY_COUNT << 30 | count)
        return 0

    cdef uint32_t returns_of(self, Place* place) except? 0:
        if self.returns is None:
            return 0
        return self.returns.get(place_key(place), 0)

    # -- purging -----------------------------------------------------------------------------------

    def purge_part(self, uint32_t most) -> int:
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
        cdef uint64_t purged = self.ready
        cdef Segments segments = self.segments
        cdef Segment* segment
        cdef Segment* following
        cdef uint64_t unread
        self.purge_part(self.requeued.count)
        if self.ready == 0:
            return purged
        if self.refs.count:
            self.refs.release_unread(segments, self.files_are_free)
        # Unread messages are in the cursor's segment behind the cursor, and in all later segments,
        # which hold only those.
        unread = self.ready
        self.total -= unread
        self.total_bytes -= self.ready_bytes
        self.ready = 0
        self.ready_bytes = 0
        segment = segments.cursor
        following = segment.next
        while following != NULL:
            unread -= following.count - following.settled
            following.settled = following.passed = following.count
            following.settled_bytes = following.length - HEADER_BYTES
            following = following.next
        segment.settled += <uint32_t> unread
        segment.passed = segment.count
        segment.settled_bytes += segment.length - segments.cursor_position
        if unread and self.durable:
            self.note_at(segment, segments.cursor_position,
                         (<uint32_t> ACK_RUN << 30) | (segment.length - segments.cursor_position))
        # The purged segments are closed; the next message opens a new one.
        if segments.tail != NULL:
            if segments.tail.length and not (
                    segments.tail.segment == segments.active
                    and segments.active.settled == segments.active.count):
                segments.tail.state = FROZEN
                segments.tail = NULL
            else:
                segments.free_block(segments.tail)
        if segments.active != NULL:
            segments.active.sealed = True
        segments.cursor_position = segment.length
        segments.cursor_skip = segment.skip_count
        while segment != NULL:
            following = segment.next
            if segment.settled == segment.count:
                self.drop_segment(segment)
            segment = following
        if segments.active != NULL:
            self.roll()
        return purged

    # -- rounds ------------------------------------------------------------------------------------

    cdef int freeze(self, Round* round) except -1:
        if self.deleted:
            return 0
        self.segments.freeze(round, self.keep)
        if self.segments.first_pending != NULL:
            self.persister.add_acks(self)
        return 0

    cdef int written(self, Round* round) except -1:
        self.segments.written(self.keep and not self.deleted, self)
        if self.deleted:
            return self.finish_delete()
        if self.waiting_round:
            self.waiting_round = False
            self.touch()
        return 0

    cdef int retry(self) except -1:
        return self.files_free()

    cdef bint background(self) except? True:
        if self.deleted or not self.durable:
            return False
        return self.sealing().work(self)

    cdef int background_done(self, Round* round) except -1:
        return self.sealing().done(round)

    # -- rest and end ------------------------------------------------------------------------------

    def rest(self) -> None:
        cdef Segments segments = self.segments
        if segments.tail != NULL and segments.tail.length == 0:
            segments.free_block(segments.tail)
        segments.free_written()
        self.rest_reading()
        self.refs.rest()
        if (self.total == 0 and segments.active != NULL and segments.active.messages != NULL
                and segments.first_block == NULL):
            segments.active.sealed = True
            self.drop_segment(segments.active)
        elif segments.give_back() and not self.dirty:
            self.persister.add(self)

    cdef void rest_reading(self) noexcept:
        """Reading does not continue for now."""
        if self.buffer is not None:
            self.buffer.rest()

    cdef int mark_exactly(self) except -1:
        """The watermarks say what was delivered up to now, and no more."""
        if self.segments.mark_exactly() and not self.dirty:
            self.persister.add(self)
        return 0

    def close(self) -> None:
        self.mark_exactly()
        self.keep = False
        self.segments.closing = True
        if self.segments.give_back() and not self.dirty:
            self.persister.add(self)

    def delete(self) -> None:
        self.deleted = True
        if self.refs.count:
            self.refs.release_unread(self.segments, self.files_are_free)
            self.refs.release_taken()
        self.segments.free_unwritten()
        self.ready = self.ready_bytes = self.total = self.total_bytes = 0
        self.refs.end()
        self.finish_delete()

    cdef int files_free(self) except -1:
        """Some files may not be in flight any more."""
        self.segments.remove_waiting(self)
        return self.finish_delete() if self.deleted else 0

    def files_are_free(self):
        """The same, for a thread that has read them."""
        self.files_free()

    cdef int finish_delete(self) except -1:
        """Removes the files of a deleted queue, once no thread writes or reads them."""
        if self.segments.is_being_written() or (self.buffer is not None and self.buffer.busy):
            return 0
        self.rest_reading()
        if self.segments.remove_all(self):
            # It is the queue's method, and the queue has this store: a circle.
            self.touch = not_needed
        return 0

    # -- figures -----------------------------------------------------------------------------------

    def count_references(self) -> int:
        return self.refs.count

    @property
    def segment_count(self) -> int:
        return self.segments.count()

    @property
    def disk_bytes(self) -> int:
        return self.segments.disk_bytes()

    @property
    def disk_bytes_live(self) -> int:
        return self.sealing().live_bytes()
