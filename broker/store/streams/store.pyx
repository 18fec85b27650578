# cython: language_level=3
"""A stream's log: records in order, each with its offset, in the segments of a queue.

Invariants:
- A record is a queue's record whose properties begin with the message's offset; messages are never
  acked in it, so there are no acks files. Offsets rise by one; a damaged stretch leaves a gap.
- Readers see synced messages only (`safe_offset`), so an offset that a client has seen never means
  another message, not even after a power cut.
- The oldest segments are removed, whole, and only when a later segment is synced: the next offset
  can always be derived from the files on disk.
- A segment that its list (`broker.store.streams.tier_list`) names lies in an object store, too; its
  file may go from this disk (`make_cold`), and readers get it through `tier`. The last segment
  never goes.
- A message costs no memory once it is written; a segment costs its summary, about 1 KiB for 8 MiB.

Layouts: docs/formats/stream.md.
"""

import os

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, strdup

from broker.kernel.buffer cimport store16, store64
from broker.kernel.message cimport EXPIRES, Message, PERSISTENT
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.tail_memory cimport TAIL_FULL
from broker.store.files.disk cimport file_free, file_new
from broker.store.files.operation cimport File, OP_UNLINK, OP_WRITE, Op
from broker.store.files.io_thread cimport (
    Round, STAGE_REMOVE, STAGE_WRITE, round_add, round_new,
)
from broker.store.files.record cimport (
    HEADER_BYTES, MARK, OFFSET_BYTES, SHARES, SHARING_BYTES, record_bytes, record_put_behind,
)
from broker.store.log.segments cimport Block, QueueDirectory, Segment, Segments
from broker.store.streams.cold cimport ColdFile
from broker.store.streams.offsets cimport ConsumerOffsets, TrackedOffset
from broker.store.streams.summary cimport Summary
from broker.store.streams.tier_list import NAME as TIER_LIST, TierList

from broker.store.log.segments import not_needed

cdef uint8_t no_properties[2]
no_properties[0] = no_properties[1] = 0


cdef class StreamStore(Dirty):
    """The store of one stream. `segment_size` 0 means the broker's."""

    def __init__(self, QueueDirectory folder, bint durable, touch, uint32_t offsets_max,
                 uint64_t segment_size=0):
        self.persister = folder.persister
        self.folder = folder
        self.segments = Segments(folder, durable)
        self.incarnation = folder.incarnation
        self.touch = touch
        self.summaries = []
        self.offsets = ConsumerOffsets(self.directory, offsets_max)
        self.rolled = []
        self.unwritten = []
        self.metas_in_flight = []
        self.condemned = []
        self.reading_cursors = set()
        self.own_segment_size = segment_size
        self.note_message = NULL

    @property
    def directory(self) -> str:
        return self.folder.path

    @property
    def disk_bytes(self) -> int:
        """Bytes that the stream's files take on the disk, as handed to the writer."""
        return self.segments.disk_bytes()

    @property
    def first_offset(self):
        return (<Summary> self.summaries[0]).first_offset if self.summaries else self.next_offset

    def set_segment_size(self, uint64_t size):
        self.own_segment_size = size

    # -- appending ---------------------------------------------------------------------------------

    cdef int append(self, Message* message) except -1:
        """Stores one message, or a mark, at the end."""
        return self.append_sharing(message, message.properties, message.properties_length, NULL)

    cdef int append_sharing(self, Message* message, const uint8_t* noted, uint32_t noted_length,
                            SharedHeaders* shared) except -1:
        """As `append`; the summary notes the filter values that these properties have: those of the
        message itself where the broker has put others in front. With `shared`, its headers begin
        with what others share, or they are left out and `refer` has agreed."""
        cdef Message record = message[0]
        cdef uint8_t front[OFFSET_BYTES + SHARING_BYTES]
        cdef uint32_t length, front_length = OFFSET_BYTES
        cdef Segments segments = self.segments
        cdef Segment* segment = segments.active
        cdef Block* tail
        cdef uint64_t full = self.own_segment_size or self.persister.segment_size
        record.flags &= PERSISTENT | EXPIRES | MARK
        # A clock that was set back between two runs must not disturb the search by time.
        if record.timestamp < self.last_timestamp:
            record.timestamp = self.last_timestamp
        self.last_timestamp = record.timestamp
        store64(front, self.next_offset)
        if shared != NULL and shared.back:
            record.flags |= SHARES
            store16(front + OFFSET_BYTES, shared.back)
            store16(front + OFFSET_BYTES + 2, shared.length)
            front_length = OFFSET_BYTES + SHARING_BYTES
        length = record_bytes(&record) + front_length
        if segment == NULL or (segment.count > 0 and segment.length + <uint64_t> length > full):
            self.roll()
            segment = segments.active
        tail = segments.tail
        if message.large == NULL and (
                tail == NULL or tail.length + length > tail.capacity or tail.length >= TAIL_FULL):
            tail = segments.room_for(length)
        if shared != NULL and not shared.back:
            shared.store = self.incarnation
            shared.segment = segment.number
            shared.position = <uint32_t> segment.length
        if message.large != NULL:
            tail = segments.new_large(&record, front, front_length)
        else:
            record_put_behind(tail.data + tail.length, &record, front, front_length)
            self.persister.tail_bytes += length
        tail.length += length
        tail.count += 1
        if record.flags & MARK:
            self.newest.begins_anew = True
            self.newest.first_timestamp = self.newest.last_timestamp = record.timestamp
            self.newest.length = segment.length + length
        else:
            self.newest.add(self.next_offset, record.timestamp, segment.length, length,
                            record.body_length)
            if self.note_message != NULL:
                self.note_message(self.newest, noted, noted_length)
            self.next_offset += 1
            self.total += 1
            self.total_bytes += record.body_length
        segment.length += length
        segment.count += 1
        if not self.dirty:
            self.persister.add(self)
        return 0

    cdef int roll(self) except -1:
        """Seals the active segment and begins the next one."""
        if self.newest is not None:
            self.newest.sealed = True
            self.rolled.append(self.newest)
            # Its summary is written once it is synced, and the oldest segments may go then.
            self.ask()
        self.segments.roll()
        self.newest = Summary(self.segments.active.number, self.next_offset)
        self.summaries.append(self.newest)
        return 0

    cdef int ask(self) except -1:
        """A reader or publisher waits for appended messages: the next round writes and syncs
        them."""
        if not self.dirty:
            self.persister.add(self)
        self.persister.sync_asked = True
        return self.persister.press()

    cdef int keep_offset(self, TrackedOffset tracked, uint64_t offset) except -1:
        """A consumer is done with everything up to `offset`."""
        self.offsets.store(tracked, offset)
        if not self.dirty:
            self.persister.add(self)
        return 0

    # -- finding -----------------------------------------------------------------------------------

    cdef uint32_t limit(self, Summary summary) noexcept:
        """Up to which position the segment may be read now."""
        if summary.number < self.safe_number:
            return summary.length
        return self.safe_position if summary.number == self.safe_number else HEADER_BYTES

    cdef Py_ssize_t index_of(self, uint64_t offset):
        """The segment that holds an offset, or the first one behind it, as an index into
        `summaries`, which are not empty."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = len(self.summaries)
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if (<Summary> self.summaries[middle]).first_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1 if low else 0

    cdef Py_ssize_t place_of(self, uint32_t segment):
        """Where in `summaries` this segment is, or the first one behind it."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = len(self.summaries)
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if (<Summary> self.summaries[middle]).number < segment:
                low = middle + 1
            else:
                high = middle
        return low

    def summary_of(self, uint32_t segment) -> object:
        """The summary of a segment; None: the stream does not hold it any more."""
        cdef Py_ssize_t place = self.place_of(segment)
        if place < len(self.summaries) and (<Summary> self.summaries[place]).number == segment:
            return self.summaries[place]
        return None

    def synced_parts(self, uint32_t segment, uint32_t position, uint32_t most) -> list:
        """What is synced from a place on, in order: (summary, position, end), one row for each
        segment, at most `most`. For readers in other threads."""
        cdef Py_ssize_t place = self.place_of(segment)
        cdef Summary summary
        cdef uint32_t end
        parts = []
        while place < len(self.summaries) and len(parts) < <Py_ssize_t> most:
            summary = <Summary> self.summaries[place]
            place += 1
            end = self.limit(summary)
            if summary.number > segment or position < HEADER_BYTES:
                position = HEADER_BYTES
            if position < end:
                parts.append((summary, position, end))
        return parts

    @property
    def synced_end(self) -> tuple:
        """The (segment, position) behind what is synced."""
        return self.safe_number, self.safe_position

    @property
    def first_segment(self) -> int:
        """The oldest one that is held, or the next one."""
        return (<Summary> self.summaries[0]).number if self.summaries else self.segments.next_number

    cdef int note_gap(self, Summary summary, uint32_t position, uint64_t length) except -1:
        """`length` bytes of a segment are no record, and kept in quarantine."""
        if summary.gaps is None:
            summary.gaps = {}
        summary.gaps[position] = length
        self.damaged += length
        return 0

    # -- removal -----------------------------------------------------------------------------------

    def retain(self, int64_t max_length, int64_t max_bytes, int64_t oldest) -> int:
        """Drops the oldest segments while there are more messages or bytes than the limits (-1 =
        none), or while all their messages are older than `oldest` (ms since 1970). Never the active
        segment, nor one that nothing synced follows. Returns how many messages went."""
        cdef Summary summary
        cdef uint64_t before = self.total
        cdef uint64_t left = self.total
        cdef uint64_t left_bytes = self.total_bytes
        cdef Py_ssize_t count = 0
        while count < len(self.summaries) - 1:
            summary = <Summary> self.summaries[count]
            if summary.number >= self.safe_number or not summary.sealed:
                break
            if not (max_length >= 0 and left > <uint64_t> max_length
                    or max_bytes >= 0 and left_bytes > <uint64_t> max_bytes
                    or summary.last_timestamp < oldest):
                break
            left -= summary.count
            left_bytes -= summary.body_bytes
            count += 1
        self.drop_oldest(count)
        self.sweep()
        return before - self.total

    cdef int drop_oldest(self, Py_ssize_t count) except -1:
        """The oldest segments count no more; their files go with `sweep`."""
        cdef Summary summary
        # All at once: taking the first of many moves the others each time.
        cdef list dropped = self.summaries[:count]
        del self.summaries[:count]
        for summary in dropped:
            summary.dropped = True
            self.count_tiered(summary, -1)
            self.total -= summary.count
            self.total_bytes -= summary.body_bytes
        self.condemned += dropped
        return 0

    cdef int sweep(self) except -1:
        """Removes the files of condemned segments that something synced follows."""
        cdef Summary summary
        cdef Py_ssize_t count = 0
        cdef list going
        if self.metas_in_flight:
            return 0
        for summary in self.condemned:
            if summary.number >= self.safe_number:
                break
            count += 1
        going = self.condemned[:count]
        del self.condemned[:count]
        for summary in going:
            self.let_go(summary)
            if summary.tiered is not None and self.tier is not None:
                self.tier.dropped(self, summary)
        return 0

    def enter(self, Summary summary, tiered) -> bool:
        """An object holds this segment, and the synced list says so. False: the segment was dropped
        meanwhile."""
        if summary.dropped or self.deleted:
            return False
        summary.tiered = tiered
        self.count_tiered(summary, 1)
        return True

    cdef int count_tiered(self, Summary summary, int sign) except -1:
        if summary.tiered is not None:
            self.tiered_segments += sign
            self.tiered_bytes += sign * <int64_t> summary.length
            if summary.cold:
                self.cold_segments += sign
                self.cold_bytes += sign * <int64_t> summary.length
        return 0

    def list_of_tiers(self):
        """The list of segments that lie in an object store, begun if there is none."""
        if self.listed is None:
            self.listed = TierList(self.persister, self.directory)
        return self.listed

    def copy_at(self, str path, uint64_t length):
        """A local copy of a segment of this length, empty as yet."""
        return ColdFile(self.persister, path, length)

    def make_cold(self, Summary summary) -> bool:
        """The object that holds this segment is in the synced list: its file on this disk goes.
        False: not now, since it is the last one, or its summary is being written."""
        if (summary.number >= self.safe_number or summary.tiered is None or self.metas_in_flight
                or self.deleted):
            return False
        if not summary.cold and not summary.dropped:
            self.count_tiered(summary, -1)
            summary.cold = True
            self.count_tiered(summary, 1)
            self.let_go(summary)
            summary.on_disk = False
        return True

    cdef int let_go(self, Summary summary) except -1:
        """Removes the files of a segment; none of them may be being written."""
        cdef Segment* segment = self.segments.find(summary.number)
        if segment != NULL:
            self.segments.drop(segment, self)
        if summary.on_disk:
            self.remove_file(f"meta.{summary.number:010d}")
        return 0

    cdef int remove_file(self, str name) except -1:
        cdef Round* round = round_new()
        cdef Op* op = round_add(round, STAGE_REMOVE, OP_UNLINK, NULL)
        encoded = os.fsencode(f"{self.folder.path}/{name}")
        op.path = strdup(<char*> encoded)
        self.persister.background.remove(round)
        return 0

    def purge(self) -> int:
        """Removes all messages: a new segment begins with a mark, and the older ones are removed
        when the mark is synced. Offsets continue. Returns the number of removed messages."""
        cdef Message mark
        cdef uint64_t count = self.total
        if count == 0:
            return 0
        mark.exchange = mark.routing_key = mark.body = &no_properties[0]
        mark.exchange_length = mark.routing_key_length = 0
        mark.body_length = 0
        mark.large = NULL
        mark.properties = &no_properties[0]
        mark.properties_length = 2
        mark.flags = MARK
        mark.timestamp = self.last_timestamp
        self.roll()
        self.append(&mark)
        self.drop_oldest(len(self.summaries) - 1)
        self.ask()
        return count

    # -- rounds ------------------------------------------------------------------------------------

    cdef int freeze(self, Round* round) except -1:
        if self.deleted:
            return 0
        self.write_summaries(round)
        self.offsets.freeze(round, self.persister, self.folder)
        self.segments.freeze(round, False)
        self.flying_offset = self.next_offset
        if self.newest is not None:
            self.flying_number = self.newest.number
            self.flying_position = self.newest.length
        return 0

    cdef int write_summaries(self, Round* round) except -1:
        cdef Summary summary
        cdef File* file
        cdef Op* op
        for summary in self.unwritten:
            if summary.dropped or summary.cold:
                continue
            data = summary.encode(self.incarnation)
            file = file_new(f"{self.folder.path}/meta.{summary.number:010d}")
            self.folder.ensure(round)
            self.persister.files.use(round, file)
            op = round_add(round, STAGE_WRITE, OP_WRITE, file)
            op.length = len(data)
            op.data = <uint8_t*> malloc(op.length)
            if op.data == NULL:
                raise MemoryError("no memory for a stream's summary")
            op.owns_data = True
            memcpy(op.data, <char*> data, op.length)
            summary.on_disk = True
            self.metas_in_flight.append(<size_t> file)
        self.unwritten = []
        return 0

    cdef int written(self, Round* round) except -1:
        cdef size_t address
        cdef Summary summary
        for address in self.metas_in_flight:
            file_free(<File*> address)
        self.metas_in_flight = []
        self.offsets.written(round, self.persister)
        self.segments.written(False, self)
        if self.deleted:
            return self.finish_delete()
        if self.flying_number == self.safe_number and self.flying_position == self.safe_position:
            return self.sweep()
        if not round.sync or self.segments.is_postponed():
            # The next sync covers what this round wrote, and what found no space: the store has to
            # be in its round.
            self.persister.add(self)
            return self.sweep()
        self.safe_offset = self.flying_offset
        self.safe_number = self.flying_number
        self.safe_position = self.flying_position
        # What was sealed before this sync is on disk now, so its summary can be written.
        while self.rolled and (<Summary> self.rolled[0]).number < self.safe_number:
            summary = self.rolled.pop(0)
            self.unwritten.append(summary)
            self.persister.add(self)
        self.sweep()
        self.touch()
        return 0

    cdef int retry(self) except -1:
        self.segments.remove_waiting(self)
        return self.finish_delete() if self.deleted else 0

    # -- readers -----------------------------------------------------------------------------------

    cdef int read_begins(self, object cursor) except -1:
        """A thread reads for a cursor: it is kept alive, and the files stay."""
        self.reads += 1
        self.reading_cursors.add(cursor)
        return 0

    cdef int read_ends(self, object cursor) except -1:
        self.reads -= 1
        self.reading_cursors.discard(cursor)
        return self.retry()

    # -- end ---------------------------------------------------------------------------------------

    def delete(self) -> None:
        """The stream is deleted: frees its memory and removes its files."""
        self.deleted = True
        self.segments.free_unwritten()
        self.total = self.total_bytes = 0
        self.finish_delete()

    cdef int finish_delete(self) except -1:
        cdef Summary summary
        if self.segments.is_being_written() or self.reads or self.metas_in_flight:
            return 0
        if self.offsets.is_busy():
            self.persister.retry_later(self)
            return 0
        if self.listed is not None:
            if not self.listed.end(self.list_ended):
                return 0
            self.listed = None
            self.remove_file(TIER_LIST)
        for summary in self.summaries + self.condemned:
            if summary.on_disk:
                self.remove_file(f"meta.{summary.number:010d}")
        self.summaries = []
        self.condemned = []
        self.newest = None
        self.offsets.delete(self.persister)
        self.offsets.forgot = None
        self.tier = None
        if self.segments.remove_all(self):
            # It is the stream's method, and the stream has this store: a circle.
            self.touch = not_needed
        return 0

    def list_ended(self) -> None:
        """Nothing is written to the list of a deleted stream any more."""
        if self.deleted:
            self.finish_delete()
