# cython: language_level=3
"""Recovers a queue's messages: reads its segments and acks, checks every record, and prepares the
store to continue in a fresh segment.

A record that fails its checksum does not end recovery: it searches for the next record whose seeded
CRC is right, and reports and skips what lies between. Only a tail without a sound record behind it
is cut.
"""

import bisect
import logging

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, malloc

from broker.kernel.checksum cimport crc32c_of, place_seed
from broker.kernel.message cimport BODY_IS_REFERENCE, EXPIRES, Message
from broker.store.bodies.store cimport BodyStore
from broker.store.files import disk
from broker.store.files.disk cimport file_new
from broker.store.files.planted cimport planted
from broker.store.files.record cimport (
    ACK_WATERMARK, ACKS_MAGIC, FORMAT_VERSION, HEADER_BYTES, RecordHead, SEGMENT_MAGIC,
    SUMMARY_MAGIC, Summary, record_view,
)
from broker.store.files.sound_search cimport RecordSearch
from broker.store.files.spans cimport Settled, Span, read_settled, settled_free
from broker.store.log.contracts cimport MessageStore
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.sealed cimport punch_when
from broker.store.log.segments cimport MIXED, Segment

log = logging.getLogger("leveret.store")


# What a segment holds.
cdef struct Content:
    uint32_t live
    uint64_t live_bytes          # of bodies
    uint32_t count               # records, settled ones included as far as they were counted
    uint64_t body_bytes
    uint32_t overhead
    uint8_t flags
    uint32_t length              # position behind the last record
    bint whole                   # count, body_bytes, overhead and flags speak of all records
    bint damaged
    uint32_t references          # to shared bodies, of live records


SEGMENT_HEADER = SEGMENT_MAGIC.to_bytes(4, "little") + FORMAT_VERSION.to_bytes(4, "little")


ACKS_HEADER = ACKS_MAGIC.to_bytes(4, "little") + FORMAT_VERSION.to_bytes(4, "little")


def recover(MessageStore store) -> list:
    """Fills an empty store from its directory. Returns sentences about what was wrong, for the log
    and the UI."""
    cdef QueueStore part
    cdef SegmentRecovery recovery
    problems = []
    directory = store.directory
    names = disk.listdir(directory)
    store.folder.made = bool(names)
    kinds = {"msgs": {}, "acks": {}, "meta": {}}
    for name in names:
        kind, _, digits = name.partition(".")
        if kind in kinds and len(digits) == 10 and digits.isdigit():
            kinds[kind][int(digits)] = name
        elif name.endswith(".tmp"):
            disk.unlink(f"{directory}/{name}")
        else:
            problems.append(f"{directory}/{name} is not known here; it was left alone")
    for kind in ("acks", "meta"):
        for number in sorted(kinds[kind]):
            if number not in kinds["msgs"]:
                # The number was given, and is not given again.
                part = <QueueStore> store.part_of(number)
                if part is not None:
                    part.go_on_from(number + 1)
                disk.unlink(f"{directory}/{kinds[kind].pop(number)}")
    numbers = sorted(kinds["msgs"])
    last_of = {store.part_of(number): number for number in numbers}
    for number in numbers:
        part = <QueueStore> store.part_of(number)
        if part is None:
            problems.append(f"{directory}/msgs.{number:010d} is no file of this queue")
            continue
        try:
            recovery = SegmentRecovery(
                part, directory, number, kinds, number == last_of[part], problems)
            recovery.recover()
        except OSError as error:
            problems.append(
                f"{directory}/msgs.{number:010d} cannot be read: {error.strerror}; it was left "
                "alone, and its messages are missing until it can be read at a start")
            if store.refs.bodies is not None:
                store.refs.bodies.keep_all()
        part.go_on_from(number + 1)
    store.recovered()
    if problems and store.refs.bodies is not None:
        store.refs.bodies.doubt()
    return problems


cdef bint is_summary(bytes data, uint64_t incarnation, uint32_t number):
    cdef const uint8_t* p = data
    cdef const Summary* summary = <const Summary*> p
    return (<size_t> len(data) == sizeof(Summary) + 4 and summary.magic == SUMMARY_MAGIC
            and summary.version == FORMAT_VERSION
            and (<const uint32_t*> (p + sizeof(Summary)))[0] == crc32c_of(
                place_seed(incarnation, number, 0), p, sizeof(Summary)))


cdef bint from_summary(QueueStore store, bytes data, uint32_t number, Settled* settled,
                       Content* content):
    """Uses a summary, if the acks agree with it exactly. Of shared bodies it has only the number of
    records with a reference: enough where the references are known."""
    cdef uint64_t incarnation = store.folder.incarnation
    cdef const uint8_t* p = data
    cdef const Summary* summary = <const Summary*> p
    cdef Span* last
    if not is_summary(data, incarnation, number):
        return False
    if (summary.references or summary.flags & BODY_IS_REFERENCE) and (
            not summary.references or settled.entries or store.refs.bodies is None
            or not store.refs.bodies.knows_references):
        return False
    if settled.runs or settled.unsound or settled.entries > summary.count:
        return False
    if settled.entries and not summary.overhead:
        return False
    if settled.count:
        # Acks are written before the records of their round: if a kill prevented a record, the
        # summary has no trace of it.
        last = &settled.spans[settled.count - 1]
        if <uint64_t> last.position + last.length > summary.length:
            return False
    content.count = summary.count
    content.body_bytes = summary.body_bytes
    content.overhead = summary.overhead if summary.overhead else <uint32_t> MIXED
    content.flags = <uint8_t> summary.flags
    content.references = summary.references
    content.length = summary.length
    content.live = summary.count - settled.entries
    content.live_bytes = summary.body_bytes - (
        settled.entry_bytes - <uint64_t> settled.entries * summary.overhead)
    content.whole = True
    content.damaged = False
    return True


cdef size_t next_record(RecordSearch search, size_t at, size_t end) except? 0:
    """The first position from `at` on and below `end` with a sound record, or `end`."""
    cdef uint32_t seed = 0
    if planted(b"no check") and search.claim(at, &seed) >= 0:
        return at
    return search.next(at, end)


def summary_at(str path) -> bytes:
    """The content of a segment's summary; None if the disk fails: the segment has the same
    facts."""
    try:
        return disk.read(path)
    except OSError as error:
        log.warning("%s cannot be read: %s; its segment is read instead", path, error.strerror)
        return b""


cdef class SegmentRecovery:
    """One segment: what its files hold, until it is entered in its store."""
    cdef QueueStore store
    cdef str directory, path, acks_path, summary_path
    cdef uint32_t number
    cdef bint has_acks, has_summary, is_last
    cdef list problems
    cdef Content content
    cdef Settled settled
    cdef bytes acks
    cdef size_t unread           # bytes of the acks that the disk does not give
    cdef list skips              # (position, length) of stretches that reading steps over
    cdef list gaps               # those of them that are to be noted as settled

    def __init__(self, QueueStore store, str directory, uint32_t number, dict kinds, bint is_last,
                 list problems):
        self.store = store
        self.directory = directory
        self.number = number
        self.path = f"{directory}/msgs.{number:010d}"
        self.acks_path = f"{directory}/acks.{number:010d}"
        self.summary_path = f"{directory}/meta.{number:010d}"
        self.has_acks = number in kinds["acks"]
        self.has_summary = number in kinds["meta"]
        self.is_last = is_last
        self.problems = problems
        self.acks = b""
        self.skips = []
        self.gaps = []

    def __dealloc__(self):
        settled_free(&self.settled)

    cdef int recover(self) except -1:
        self.read_acks()
        if self.has_summary:
            self.read_summary()
        if not self.has_summary:
            self.read_records()
        if self.content.live:
            self.enter()
        elif not self.content.damaged or self.gaps or self.skips:
            disk.unlink(self.path)
            self.store.persister.background.outlive(
                self.directory, [self.acks_path, self.summary_path])
        return 0

    # --- its files -------------------------------------------------------------------------

    cdef int read_acks(self) except -1:
        cdef const uint8_t* data
        if self.has_acks:
            self.acks, self.unread = disk.read_readable(self.acks_path)
            if self.unread:
                # Each entry has a check of its own, also those behind a header that is not read.
                self.acks = ACKS_HEADER + self.acks[HEADER_BYTES:]
                self.problems.append(
                    f"{self.acks_path}: {self.unread} bytes cannot be read; messages that they "
                    "settled come again")
        data = self.acks
        if read_settled(data, len(self.acks), self.store.folder.incarnation, self.number,
                        &self.settled):
            raise MemoryError("no memory for settled positions")
        if self.settled.unsound:
            self.problems.append(
                f"{self.acks_path}: {self.settled.unsound} entries are damaged; messages that they "
                "settled may come again")
        return 0

    cdef int read_summary(self) except -1:
        """Takes the facts from the summary; removes it if the other files do not agree with it."""
        cdef uint32_t i
        size = disk.size(self.path)
        self.has_summary = from_summary(
            self.store, summary_at(self.summary_path), self.number, &self.settled, &self.content
        ) and self.content.length == size
        if not self.has_summary:
            self.content = Content(0, 0, 0, 0, 0, 0, 0, False, False, 0)
            disk.unlink(self.summary_path)
            return 0
        if self.content.references:
            self.store.refs.bodies.count_known(self.content.references)
        self.skips = [
            (self.settled.spans[i].position, self.settled.spans[i].length)
            for i in range(self.settled.count)]
        return 0

    cdef int read_records(self) except -1:
        """Reads the segment record by record; what is settled is stepped over, be it a hole or
        not. The stretches that are no records become skips and gaps."""
        cdef bytes data = disk.read(self.path)
        cdef RecordSearch search = RecordSearch(data, self.store.folder.incarnation, self.number)
        cdef size_t at = HEADER_BYTES
        cdef size_t following, limit
        cdef uint32_t length
        cdef uint32_t index = 0
        cdef Span* settled = self.settled.spans
        self.content.whole = True
        while at < search.length:
            while index < self.settled.count and (
                    <size_t> settled[index].position + settled[index].length <= at):
                index += 1
            limit = search.length
            if index < self.settled.count and settled[index].position <= at:
                self.content.whole = False
                limit = min(limit, <size_t> settled[index].position + settled[index].length)
                self.skips.append((at, limit - at))
                at = limit
                continue
            if index < self.settled.count and settled[index].position < limit:
                limit = settled[index].position
            following = next_record(search, at, limit)
            if following == search.length:
                break
            if following > at:
                self.set_aside(data, at, following)
                at = following
                continue
            length = (<const RecordHead*> (search.data + at)).length + 4
            if planted(b"skip the last record") and at + length == search.length:
                break
            self.count_record(search.data, at, length)
            at += length
        self.check_header(data)
        self.content.count = self.content.live
        self.content.body_bytes = self.content.live_bytes
        self.content.length = <uint32_t> at
        if at < search.length and (self.content.live or not self.content.damaged):
            self.cut_tail(data, at)
        return 0

    cdef int set_aside(self, bytes data, size_t at, size_t following) except -1:
        """Keeps a copy of a stretch that is no message, and has it skipped."""
        quarantine = self.store.persister.quarantine
        self.content.damaged = True
        quarantine.take(
            self.store.folder.incarnation, self.number, at, data[at:following], following - at)
        self.problems.append(
            f"{self.path}: {following - at} bytes at position {at} are no message; they are in "
            f"{quarantine.directory}")
        self.skips.append((at, following - at))
        self.gaps.append((at, following - at))
        return 0

    cdef int count_record(self, const uint8_t* data, size_t at, uint32_t length) except -1:
        cdef Message message
        cdef Content* content = &self.content
        cdef BodyStore bodies = self.store.refs.bodies
        record_view(data + at, &message)
        if message.flags & BODY_IS_REFERENCE:
            if bodies is None or not bodies.count_recovered(message.reference):
                # Its message was acked, or never confirmed.
                content.whole = False
                self.skips.append((at, length))
                self.gaps.append((at, length))
                return 0
            content.references += 1
            content.overhead = MIXED
        content.live += 1
        content.live_bytes += message.body_length
        content.flags |= message.flags
        if content.overhead == 0:
            content.overhead = length - message.body_length
        elif content.overhead != length - message.body_length:
            content.overhead = MIXED
        return 0

    cdef int check_header(self, bytes data) except -1:
        if (data[:HEADER_BYTES] != SEGMENT_HEADER and len(data) > HEADER_BYTES
                and data.count(0) != len(data)):
            self.problems.append(
                f"{self.path} does not begin like a segment of this version; "
                f"{self.content.live} messages were found in it")
            self.content.damaged = True
        return 0

    cdef int cut_tail(self, bytes data, size_t at) except -1:
        """Cuts a tail that holds no record: of the last segment that is what a power cut leaves,
        of another one it may be damage, and is kept aside."""
        cut = f"{self.path}: cut {len(data) - at} bytes behind the last sound record"
        tail = data[at:]
        if tail.count(0) == len(tail):
            # Space ahead, of which nothing was lost.
            disk.truncate(self.path, at)
            return 0
        if not self.is_last:
            quarantine = self.store.persister.quarantine
            quarantine.take(
                self.store.folder.incarnation, self.number, at, tail, len(tail))
            cut += f"; they are in {quarantine.directory}"
        self.problems.append(cut)
        disk.truncate(self.path, at)
        return 0

    # --- its place in the store ----------------------------------------------------------------

    cdef int enter(self) except -1:
        cdef QueueStore store = self.store
        cdef Segment* segment = self.new_segment()
        store.refs.count += self.content.references
        self.note_returns()
        self.take_acks(segment)
        self.take_skips(segment)
        segment.punch_at = punch_when(segment)
        store.segments.append(segment)
        if segment.flags & EXPIRES:
            store.any_expires = True
        # What is in quarantine is settled, so that it is not found again at the next start.
        for position, length in self.gaps:
            store.note(segment, position, length)
        if segment.watermark > self.settled.watermark:
            store.note(segment, segment.watermark, <uint32_t> ACK_WATERMARK << 30)
        if not segment.summarised or segment.settled_bytes >= segment.punch_at:
            store.persister.background.attend(store)
        store.ready += self.content.live
        store.total += self.content.live
        store.ready_bytes += self.content.live_bytes
        store.total_bytes += self.content.live_bytes
        return 0

    cdef Segment* new_segment(self) except NULL:
        cdef Content* content = &self.content
        cdef Segment* segment = <Segment*> calloc(1, sizeof(Segment))
        # Any of the messages may have been delivered.
        cdef bint doubtful = self.unread or self.store.persister.doubts_marks
        cdef uint32_t watermark = max(self.settled.watermark, content.length * doubtful)
        if segment == NULL:
            raise MemoryError("no memory for a segment")
        segment.number = self.number
        segment.count = content.count
        segment.settled = segment.passed = content.count - content.live
        segment.length = content.length
        segment.sealed = segment.recovered = True
        segment.damaged = content.damaged
        segment.summarised = self.has_summary or not content.whole or content.damaged
        segment.body_bytes = content.body_bytes
        segment.overhead = content.overhead
        segment.flags = content.flags
        segment.references = segment.referring = content.references
        segment.watermark = segment.watermark_safe = segment.watermark_flying = watermark
        segment.recovered_watermark = watermark
        segment.messages = file_new(self.path)
        return segment

    cdef int note_returns(self) except -1:
        """How often the messages came back that are neither settled nor damaged."""
        cdef QueueStore store = self.store
        cdef Span* returned
        cdef uint32_t i
        cdef Py_ssize_t before
        if not self.settled.return_count:
            return 0
        starts = [start for start, _ in self.skips]
        for i in range(self.settled.return_count):
            returned = &self.settled.returns[i]
            before = bisect.bisect(starts, returned.position)
            if before and returned.position < sum(self.skips[before - 1]):
                continue
            if store.returns is None:
                store.returns = {}
            store.returns[<uint64_t> self.number << 32 | returned.position] = returned.length
        return 0

    cdef int take_acks(self, Segment* segment) except -1:
        if self.settled.end:
            segment.acks = file_new(self.acks_path)
            segment.acks_length = self.settled.end
            if <size_t> len(self.acks) > self.settled.end:
                disk.truncate(self.acks_path, self.settled.end)
        elif self.has_acks:
            disk.unlink(self.acks_path)
        return 0

    cdef int take_skips(self, Segment* segment) except -1:
        cdef uint32_t i
        if not self.skips:
            return 0
        segment.skips = <Span*> malloc(len(self.skips) * sizeof(Span))
        if segment.skips == NULL:
            raise MemoryError("no memory for settled positions")
        segment.skip_count = len(self.skips)
        for i in range(segment.skip_count):
            segment.skips[i].position, segment.skips[i].length = self.skips[i]
            segment.settled_bytes += segment.skips[i].length
        taken = disk.allocated(self.path)
        segment.holes = max(0, <int> segment.length - <int> taken)
        return 0


def keep_bodies_of(BodyStore bodies, str directory, uint64_t incarnation) -> None:
    """While starting: the queue with this id is in quarantine, and an operator may restore it. So
    its records count as references to shared bodies, settled ones too, whatever other references
    there are."""
    if bodies.knows_references:
        # It came there when these were counted, or has none: see `Definitions`.
        return
    try:
        for name in disk.listdir(directory):
            kind, _, digits = name.partition(".")
            if (kind == "msgs" and len(digits) == 10 and digits.isdigit()
                    and _keep_bodies_of_segment(bodies, directory, incarnation, int(digits))):
                bodies.doubt()
    except OSError:
        bodies.keep_all()


cdef bint _keep_bodies_of_segment(BodyStore bodies, str directory, uint64_t incarnation,
                                  uint32_t number) except? True:
    """Whether any record of a segment refers to a body that is there."""
    cdef RecordSearch search
    cdef size_t at = HEADER_BYTES
    cdef Message message
    cdef const uint8_t* summed
    cdef bint found = False
    summary_path = f"{directory}/meta.{number:010d}"
    if disk.exists(summary_path):
        summary = disk.read(summary_path)
        summed = summary
        if is_summary(summary, incarnation, number) and not (
                (<const Summary*> summed).flags & BODY_IS_REFERENCE):
            return False
    search = RecordSearch(disk.read(f"{directory}/msgs.{number:010d}"), incarnation, number)
    while True:
        at = next_record(search, at, search.length)
        if at >= search.length:
            return found
        record_view(search.data + at, &message)
        if message.flags & BODY_IS_REFERENCE and bodies.count_kept(message.reference):
            found = True
        at += <size_t> (<const RecordHead*> (search.data + at)).length + 4
