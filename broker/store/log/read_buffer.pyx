# cython: language_level=3
"""Records of a queue's segments that are not in memory: read a stretch at a time, and checked."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from broker.kernel.message cimport Message
from broker.store.commit.contracts cimport Dirty
from broker.store.files.disk cimport read_now
from broker.store.files.file_list cimport is_open
from broker.store.files.operation cimport OP_READ, Op
from broker.store.files.io_thread cimport Round, STAGE_WRITE, round_add, round_new
from broker.store.files.planted cimport planted
from broker.store.files.record cimport RECORD_FIXED, RecordHead, record_check, record_fits
from broker.store.log.large_record cimport LargeRecord, large_front, large_view
from broker.store.log.segments cimport Segment, Segments

cdef enum:
    READ_AHEAD = 128 << 10


@cython.final
cdef class ReadBuffer:
    """A stretch of one segment. The owner's `read_done` is called when a thread has filled it."""

    def __init__(self, Segments segments):
        self.segments = segments

    def __dealloc__(self):
        free(self.data)

    cdef int find(self, Segment* segment, uint32_t position, Dirty owner, uint8_t** record,
                  size_t* have) except -1:
        """READ: points at a whole, checked record. UNSOUND: at as much as there is of one that
        fails its check. NOT_READ: a thread fetches it."""
        cdef size_t offset
        cdef size_t wanted = READ_AHEAD
        cdef uint32_t end, front
        cdef RecordHead* head
        if self.busy:
            return NOT_READ
        if self.segment == segment and position >= self.position:
            offset = position - self.position
            have[0] = self.length - offset if offset < self.length else 0
            record[0] = self.data + offset
            head = <RecordHead*> record[0]
            end = self.segments.written_end(segment, position)
            front = large_front(record[0], have[0], end - position)
            if front and have[0] >= front:
                return self.find_large(segment, position, owner, record, have, front)
            if front and not self.short:
                wanted = max(front, <size_t> READ_AHEAD)
            elif have[0] < RECORD_FIXED and not self.short and position + have[0] < end:
                pass
            elif (have[0] >= RECORD_FIXED and <size_t> head.length + 4 > have[0] and not self.short
                    and position + <uint64_t> head.length + 4 <= end):
                wanted = <size_t> head.length + 4
                if wanted < READ_AHEAD:
                    wanted = READ_AHEAD
            elif record_fits(record[0], have[0]) and (head.check == record_check(
                    record[0], self.segments.folder.incarnation, segment.number, position)
                    or planted(b"no check")):
                self.large = None
                return READ
            else:
                return UNSOUND
        self.fetch(segment, position, wanted, owner)
        return self.find(segment, position, owner, record, have)

    cdef int find_large(self, Segment* segment, uint32_t position, Dirty owner, uint8_t** record,
                        size_t* have, uint32_t front) except -1:
        """As `find`, for a record with a large body, whose front is in the buffer."""
        cdef RecordHead* head = <RecordHead*> record[0]
        if self.large is None:
            self.large = LargeRecord()
        if not self.large.is_at(segment.number, position):
            # It raises where there is no memory, and nothing is read then.
            self.large.read(self.segments.persister, segment.messages,
                            self.segments.folder.incarnation, segment.number, position, head, owner)
            self.busy = True
            return NOT_READ
        if not self.large.is_sound:
            record[0] = self.large.whole.memory
            have[0] = self.large.whole.head + self.large.whole.length
            return UNSOUND
        # What was checked is what is shown.
        memcpy(record[0], <char*> self.large.front, front)
        return READ

    cdef void view(self, const uint8_t* record, Message* message) noexcept:
        """Points `message` into the record that `find` has returned."""
        large_view(self.large, record, message)

    cdef int fetch(self, Segment* segment, uint32_t position, size_t wanted,
                   Dirty owner) except -1:
        """Fills the buffer from `position`: at once if the page cache has it, else by the reader
        thread."""
        cdef Segments segments = self.segments
        cdef Round* round
        cdef Op* op
        cdef uint8_t* grown
        cdef ssize_t got
        cdef uint32_t end = segments.written_end(segment, position)
        if wanted > end - position:
            wanted = end - position
        if wanted > self.capacity or self.capacity > 2 * wanted + READ_AHEAD:
            grown = <uint8_t*> realloc(self.data, wanted)
            if grown == NULL:
                raise MemoryError("no memory for a read buffer")
            self.data = grown
            self.capacity = wanted
        self.segment = segment
        self.position = position
        self.length = 0
        self.short = False
        segments.persister.segment_reads += 1
        if is_open(segment.messages):
            got = read_now(segment.messages.fd, self.data, wanted, position)
            if got > 0 and (<size_t> got == wanted or record_fits(self.data, got)):
                self.length = got
                return 0
        round = round_new()
        segments.persister.files.use(round, segment.messages)
        op = round_add(round, STAGE_WRITE, OP_READ, segment.messages)
        op.data = self.data
        op.length = wanted
        op.offset = position
        self.busy = True
        return segments.persister.read(round, owner)

    cdef int done(self, Round* round) except -1:
        """The thread is done. Returns its error."""
        cdef Op* op = &round.stages[STAGE_WRITE].ops[0]
        self.busy = False
        if op.is_record:
            return self.large.done(round)
        self.length = op.done
        self.short = op.done < op.length
        if round.error:
            self.empty()
        return round.error

    cdef void forget(self, Segment* segment) noexcept:
        """The segment is removed."""
        if self.segment == segment:
            self.empty()

    cdef void empty(self) noexcept:
        """What was read is not used any more."""
        self.segment = NULL
        self.length = 0
        if not self.busy:
            self.large = None

    cdef void rest(self) noexcept:
        """Reading does not continue here for now: gives the memory back."""
        if not self.busy:
            free(self.data)
            self.data = NULL
            self.capacity = 0
            self.empty()
