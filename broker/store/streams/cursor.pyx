# cython: language_level=3
"""One reader's position in a stream: seeks to an offset or a time, and reads message by message
from there.

A seek begins at the last anchor before its goal and skips at most `ANCHOR_EVERY` bytes. Data in the
page cache is read at once; the rest is read by the reader thread, which then calls `wake`.
"""

import functools
import logging
import os

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from broker.kernel.buffer cimport Buffer
from broker.kernel.message cimport Message
from broker.store.commit.contracts cimport Dirty
from broker.store.files.disk cimport read_now
from broker.store.files.file_list cimport is_open
from broker.store.files.operation cimport File, OP_READ, Op
from broker.store.files.io_thread cimport Round, STAGE_WRITE, round_add, round_new
from broker.store.files.record cimport (
    HEADER_BYTES, RECORD_FIXED, RecordHead, SHARED_WITHIN, record_fits, record_is_sound,
)
from broker.store.files.shared_headers cimport Front, join, shared_fields, take_front
from broker.store.files.sound_search import set_aside
from broker.store.log.large_record cimport LargeRecord, large_front, large_view
from broker.store.log.segments cimport Segment
from broker.store.streams.cold cimport ColdFile
from broker.store.streams.store cimport StreamStore
from broker.store.streams.summary cimport Anchor, Summary

log = logging.getLogger("leveret.store")

cdef enum:
    READ_AHEAD = 128 << 10
    SKIPS_AT_ONCE = 64           # segments passed over in one call


cdef class StreamCursor(Dirty):
    """A place in the log of `store`, at its first message to begin with."""

    def __init__(self, StreamStore store, wake):
        self.store = store
        self.wake = wake
        self.from_time = INT64_MIN

    def __dealloc__(self):
        free(self.data)

    cdef int go_to(self, uint64_t offset) except -1:
        """The next message is the one at `offset`, or the first one behind it that is there."""
        cdef Anchor* anchor
        cdef Summary segment = self.segment
        self.from_time = INT64_MIN
        if (segment is not None and not segment.dropped and offset >= self.offset
                and offset < segment.end_offset):
            anchor = segment.anchor_at(offset)
            if anchor == NULL or anchor.position <= self.position:
                # Nearer from here than from any anchor.
                self.offset = offset
                return 0
        self.offset = offset
        self.segment = None
        return 0

    cdef int go_to_time(self, int64_t timestamp) except -1:
        """The next message is the first one published at or after a time (ms since 1970)."""
        cdef list summaries = self.store.summaries
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = len(summaries)
        cdef Py_ssize_t middle
        cdef Anchor* anchor
        while low < high:
            middle = (low + high) // 2
            if (<Summary> summaries[middle]).last_timestamp < timestamp:
                low = middle + 1
            else:
                high = middle
        if low == len(summaries):
            return self.go_to(self.store.next_offset)
        self.segment = None
        anchor = (<Summary> summaries[low]).anchor_before(timestamp)
        self.offset = (anchor.offset if anchor != NULL
                       else (<Summary> summaries[low]).first_offset)
        self.from_time = timestamp
        return 0

    cdef bint passes(self, Summary segment) except -1:
        """Whether a sealed segment may be passed over whole."""
        return False

    cdef int peek(self, Message* message, uint64_t* offset) except -1:
        """Points at the next message. WAIT: `wake` is called when it can be had. The view ends with
        the next call."""
        cdef uint8_t* record
        cdef uint32_t limit
        cdef Front front
        self.skips = 0
        while True:
            if self.reading:
                return WAIT
            if self.skips == SKIPS_AT_ONCE:
                return LATER
            if self.segment is None or self.segment.dropped:
                if not self.place():
                    return AT_END
            limit = self.store.limit(self.segment)
            if self.position >= limit:
                if not self.next_segment():
                    self.rest()
                    return AT_END
                continue
            record = self.record(limit)
            if record == NULL:
                continue
            large_view(self.large, record, message)
            self.record_length = (<RecordHead*> record).length + 4
            if (not take_front(message, &front) or front.offset < self.offset
                    or message.timestamp < self.from_time):
                self.position += self.record_length
                continue
            if front.back and not self.complete(message, &front):
                continue
            self.offset = offset[0] = front.offset
            self.from_time = INT64_MIN
            return FOUND

    cdef void step(self) noexcept:
        """The message that `peek` showed is taken."""
        self.position += self.record_length
        self.offset += 1

    cdef bint place(self) except -1:
        """Finds segment and position of `offset`. False: there is nothing to read."""
        cdef StreamStore store = self.store
        cdef Py_ssize_t index
        cdef Anchor* anchor
        if not store.summaries:
            return False
        index = store.index_of(self.offset)
        self.segment = <Summary> store.summaries[index]
        anchor = self.segment.anchor_at(self.offset)
        self.position = anchor.position if anchor != NULL else HEADER_BYTES
        self.length = 0
        self.cold_run = 0
        self.pass_segments()
        return True

    cdef bint next_segment(self) except -1:
        """Moves to the next segment. False: this is the last one."""
        cdef StreamStore store = self.store
        cdef Py_ssize_t index
        if self.segment.number >= store.safe_number:
            return False
        index = store.index_of(self.segment.first_offset)
        while (<Summary> store.summaries[index]).number <= self.segment.number:
            index += 1
            if index == len(store.summaries):
                return False
        self.segment = <Summary> store.summaries[index]
        self.position = HEADER_BYTES
        self.length = 0
        self.pass_segments()
        return True

    cdef int pass_segments(self) except -1:
        """A segment without messages of interest is skipped at once."""
        if self.passing and self.segment.sealed and self.segment.number < self.store.safe_number:
            if self.passes(self.segment):
                self.segments_skipped += 1
                self.skips += 1
                self.position = self.segment.length
                if self.offset < self.segment.end_offset:
                    self.offset = self.segment.end_offset
        return 0

    # -- reading -----------------------------------------------------------------------------------

    cdef bint complete(self, Message* message, const Front* front) except -1:
        """Puts the headers that the record at the position shares in front of its own. False: look
        again, the record that has them is read first."""
        cdef uint32_t first = self.position - front.back
        cdef StreamStore store = self.store
        cdef const uint8_t* fields
        if front.back > self.position - HEADER_BYTES:
            return True
        if first < self.data_position:
            # From now on what may be needed is read together with what needs it.
            self.before = SHARED_WITHIN
            self.length = 0
            return False
        fields = shared_fields(&self.known, self.data + (first - self.data_position), front,
                               store.incarnation, self.segment.number, first)
        if fields == NULL:
            if self.segment.cold and store.tier is not None:
                # As in `pass_over`.
                self.length = 0
                store.tier.doubt(store, self.segment)
                return False
            # That record is damaged, and reported where it is read itself. The message keeps what
            # it has of its own.
            return True
        if self.joined is None:
            self.joined = Buffer()
        join(self.joined, message, fields, front.shared)
        return True

    cdef uint8_t* record(self, uint32_t limit) except? NULL:
        """A whole, checked record at the position, or NULL: look again, it may have to be
        fetched."""
        cdef size_t have = 0
        cdef size_t wanted = READ_AHEAD
        cdef uint32_t front
        cdef uint8_t* record
        cdef RecordHead* head
        if self.length and self.data_position <= self.position < self.data_position + self.length:
            have = self.data_position + self.length - self.position
            record = self.data + (self.position - self.data_position)
            head = <RecordHead*> record
            front = large_front(record, have, limit - self.position)
            if front and have >= front:
                return self.large_record(record, front)
            if front and not self.short:
                wanted = max(front, wanted)
            elif record_is_sound(
                    record, have, self.store.incarnation, self.segment.number, self.position):
                self.large = None
                return record
            elif not self.short and self.position + have < limit and (
                    have < RECORD_FIXED or (
                        <size_t> head.length + 4 > have
                        and self.position + <uint64_t> head.length + 4 <= limit)):
                # It continues behind the part that was read.
                if have >= RECORD_FIXED and <size_t> head.length + 4 > wanted:
                    wanted = <size_t> head.length + 4
            else:
                self.pass_over()
                return NULL
        if wanted > limit - self.position:
            wanted = limit - self.position
        self.fetch(wanted)
        return NULL

    cdef uint8_t* large_record(self, uint8_t* record, uint32_t front) except? NULL:
        """As `record`, for one with a large body, whose front is in the buffer."""
        cdef StreamStore store = self.store
        cdef RecordHead* head = <RecordHead*> record
        cdef File* file
        if self.large is None:
            self.large = LargeRecord()
        if self.large.is_at(self.segment.number, self.position):
            if self.large.is_sound:
                # What was checked is what is shown.
                memcpy(record, <char*> self.large.front, front)
                return record
            self.large = None
            self.pass_over()
            return NULL
        file = self.file_with(self.position, head.length + 4)
        if file != NULL:
            # It raises where there is no memory, and nothing is read then.
            self.large.read(store.persister, file, store.incarnation, self.segment.number,
                            self.position, head, self)
            self.read_begins()
        return NULL

    cdef int pass_over(self) except -1:
        """The record at the position is damaged: continues at the next sound one. If the damage is
        new, a thread searches for that record, and copies the bytes before it to quarantine."""
        cdef StreamStore store = self.store
        cdef uint32_t limit = store.limit(self.segment)
        if self.segment.gaps is not None and self.position in self.segment.gaps:
            self.position += <uint32_t> self.segment.gaps[self.position]
            return 0
        if self.segment.cold:
            # Each block of its object was checked: only the local copy of it can be wrong.
            self.length = 0
            if store.tier is not None:
                store.tier.doubt(self.store, self.segment)
            return 0
        quarantine = store.persister.quarantine
        self.read_begins()
        store.persister.collecting.submit(
            functools.partial(
                set_aside, quarantine, quarantine.name_of(store.incarnation),
                f"{store.directory}/msgs.{self.segment.number:010d}", store.incarnation,
                self.segment.number, self.position, limit, limit),
            functools.partial(self.searched, self.segment, self.position))
        return 0

    def searched(self, Summary segment, uint32_t position, result, error):
        """The thread of `pass_over` is done."""
        if error is None:
            length, _, entry = result
            if entry is not None:
                self.store.persister.quarantine.note(entry)
            if not length:
                # It was sound when it was read again.
                self.length = 0
            elif segment.gaps is None or position not in segment.gaps:
                self.store.note_gap(segment, position, length)
        elif not segment.dropped:
            self.store.persister.failed_reads.add(
                f"messages in {self.store.directory}", str(error), self.wake)
        self.read_ends(error is None or segment.dropped)

    cdef int read_begins(self) except -1:
        self.reading = True
        return self.store.read_begins(self)

    cdef int read_ends(self, bint wakes) except -1:
        self.reading = False
        self.store.read_ends(self)
        if wakes and not self.store.deleted:
            self.wake()
        return 0

    cdef int fetch(self, size_t wanted) except -1:
        """Fills the buffer from the position on: at once if the page cache has it, else by the
        reader thread."""
        cdef uint32_t begin = self.position - min(self.before, self.position - HEADER_BYTES)
        cdef File* file
        wanted += self.position - begin
        file = self.file_with(begin, wanted)
        return self.read_from(file, begin, wanted) if file != NULL else 0

    cdef File* file_with(self, uint32_t begin, size_t wanted) except? NULL:
        """The file of the segment, which has these bytes. NULL: look again; it may have to be
        fetched."""
        cdef Segment* segment
        if self.segment.cold:
            return self.cold_file(begin, wanted)
        segment = self.store.segments.find(self.segment.number)
        if segment == NULL or segment.messages == NULL:
            self.segment = None
            return NULL
        return segment.messages

    cdef File* cold_file(self, uint32_t begin, size_t wanted) except? NULL:
        """As `file_with`, of a segment whose file is not on this disk: its local copy, once that
        has these bytes."""
        cdef ColdFile copy
        cdef StreamStore store = self.store
        if store.tier is None:
            self.read_begins()
            store.persister.failed_reads.add(
                f"messages in {store.directory}",
                "they are in an object store, and tiers are not there", self.cold_again)
            return NULL
        copy = store.tier.cached(self, self.segment, begin, wanted)
        self.cold_run += 1
        if copy is not None and copy.file != NULL:
            return copy.file
        self.read_begins()
        store.tier.fetch(self, self.segment, begin, wanted)
        return NULL

    def cold_again(self) -> None:
        """After a pause."""
        self.cold_ready("")

    def cold_ready(self, str problem) -> None:
        """What `Tier.fetch` was asked for is there. Or there is a problem: it cannot be had now,
        and the reader gets the text."""
        self.trouble = problem or None
        self.read_ends(True)

    cdef int read_from(self, File* file, uint32_t begin, size_t wanted) except -1:
        """Fills the buffer from a file: the position lies in what is wanted."""
        cdef StreamStore store = self.store
        cdef Round* round
        cdef Op* op
        cdef uint8_t* grown
        cdef size_t before = self.position - begin
        cdef ssize_t got
        if wanted > self.capacity or self.capacity > 2 * wanted + READ_AHEAD:
            grown = <uint8_t*> realloc(self.data, wanted)
            if grown == NULL:
                raise MemoryError("no memory for a read buffer")
            self.data = grown
            self.capacity = wanted
        self.data_position = begin
        self.length = 0
        self.known.fields = NULL
        self.short = False
        store.persister.segment_reads += 1
        if is_open(file):
            got = read_now(file.fd, self.data, wanted, begin)
            if got > <ssize_t> before and (<size_t> got == wanted or record_fits(
                    self.data + before, got - before)):
                self.length = got
                return 0
        round = round_new()
        store.persister.files.use(round, file)
        op = round_add(round, STAGE_WRITE, OP_READ, file)
        op.data = self.data
        op.length = wanted
        op.offset = begin
        self.read_begins()
        store.persister.read(round, self)
        return 0

    cdef int read_done(self, Round* round) except -1:
        cdef Op* op = &round.stages[STAGE_WRITE].ops[0]
        # Nothing of the position itself was read.
        cdef bint is_empty = (not op.is_record
                              and self.data_position + <uint64_t> op.done <= self.position)
        if op.is_record:
            self.large.done(round)
        else:
            self.length = op.done
            self.short = op.done < op.length
        if round.error:
            # A disk that does not answer proves nothing about the records: the reader waits here.
            self.length = 0
            self.store.persister.failed_reads.add(
                f"messages in {self.store.directory}", os.strerror(round.error), self.wake)
        elif is_empty and self.segment is not None and self.segment.cold:
            if self.store.tier is not None:
                self.store.tier.doubt(self.store, self.segment)
        elif is_empty and self.segment is not None:
            log.error("stream %016x: segment %d ends at position %d, before its time",
                      self.store.incarnation, self.segment.number, self.position)
            self.position = self.store.limit(self.segment)
        return self.read_ends(not round.error)

    cdef void rest(self) noexcept:
        """There is nothing to read for now: frees the buffer."""
        if not self.reading:
            free(self.data)
            self.data = NULL
            self.known.fields = NULL
            self.large = None
            self.capacity = self.length = 0
