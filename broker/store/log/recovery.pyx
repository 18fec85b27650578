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
    ACKS_MAGIC, FORMAT_VERSION, HEADER_BYTES, RecordHead, SEGMENT_MAGIC, SUMMARY_MAGIC, Summary,
    record_view,
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
            _recover_segment(part, directory, number, number in kinds["acks"],
                             number in kinds["meta"], number == last_of[part], problems)
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


cdef int from_records(QueueStore store, bytes data, str path, uint32_t number, Settled* settled,
                      list skips, list gaps, Content* content, bint is_last,
                      list problems) except -1:
    """Reads a segment record by record; what is settled is stepped over, be it a hole or not. The
    places of the stretches that are no records are added to `skips` and to `gaps`. A tail that
    holds no record is cut: of the last segment that is what a power cut leaves, of another one it
    may be damage, and is kept aside."""
    cdef RecordSearch search = RecordSearch(data, store.folder.incarnation, number)
    cdef size_t at = HEADER_BYTES
    cdef size_t following, limit, end
    cdef uint32_t length
    cdef uint32_t index = 0
    cdef Message message
    content.whole = True
    while at < search.length:
        while index < settled.count and (<size_t> settled.spans[index].position
                                         + settled.spans[index].length <= at):
            index += 1
        if index < settled.count and settled.spans[index].position <= at:
            content.whole = False
            end = <size_t> settled.spans[index].position + settled.spans[index].length
            if end > search.length:
                end = search.length
            skips.append((at, end - at))
            at = end
            continue
        limit = search.length
        if index < settled.count and settled.spans[index].position < limit:
            limit = settled.spans[index].position
        following = next_record(search, at, limit)
        if following == search.length:
            break
        if following > at:
            content.damaged = True
            store.persister.quarantine.take(
                store.folder.incarnation, number, at, data[at:following], following - at)
            problems.append(
                f"{path}: {following - at} bytes at position {at} are no message; they are in "
                f"{store.persister.quarantine.directory}")
            skips.append((at, following - at))
            gaps.append((at, following - at))
            at = following
            continue
        record_view(search.data + at, &message)
        length = (<const RecordHead*> (search.data + at)).length + 4
        if planted(b"skip the last record") and at + length == search.length:
            break
        if message.flags & BODY_IS_REFERENCE:
            if store.refs.bodies is None or not store.refs.bodies.count_recovered(
                    message.reference):
                # Its message was acked, or never confirmed.
                content.whole = False
                skips.append((at, length))
                gaps.append((at, length))
                at += length
                continue
            content.references += 1
            content.overhead = MIXED
        content.live += 1
        content.live_bytes += message.body_length
        content.flags |= message.flags
        if content.overhead == 0:
            content.overhead = length - message.body_length
        elif content.overhead != length - message.body_length:
            content.overhead = MIXED
        at += length
    if (data[:HEADER_BYTES] != SEGMENT_HEADER and len(data) > HEADER_BYTES
            and data.count(0) != len(data)):
        problems.append(f"{path} does not begin like a segment of this version; "
                        f"{content.live} messages were found in it")
        content.damaged = True
    content.count = content.live
    content.body_bytes = content.live_bytes
    content.length = <uint32_t> at
    if at < search.length and not (content.damaged and content.live == 0):
        cut = f"{path}: cut {search.length - at} bytes behind the last sound record"
        tail = data[at:]
        if tail.count(0) == len(tail):
            # Space ahead, of which nothing was lost.
            disk.truncate(path, at)
            return 0
        if not is_last:
            store.persister.quarantine.take(store.folder.incarnation, number, at, tail, len(tail))
            cut += f"; they are in {store.persister.quarantine.directory}"
        problems.append(cut)
        disk.truncate(path, at)
    return 0


def summary_at(str path) -> bytes:
    """The content of a segment's summary; None if the disk fails: the segment has the same
    facts."""
    try:
        return disk.read(path)
    except OSError as error:
        log.warning("%s cannot be read: %s; its segment is read instead", path, error.strerror)
        return b""


cdef int _recover_segment(QueueStore store, str directory, uint32_t number, bint has_acks,
                          bint has_summary, bint is_last, list problems) except -1:
    cdef Content content
    cdef Settled settled
    cdef Segment* segment
    cdef uint32_t i
    cdef const uint8_t* acks_data
    cdef size_t unread = 0
    path = f"{directory}/msgs.{number:010d}"
    acks_path = f"{directory}/acks.{number:010d}"
    summary_path = f"{directory}/meta.{number:010d}"
    acks = b""
    if has_acks:
        acks, unread = disk.read_readable(acks_path)
        if unread:
            # Each entry has a check of its own, also those behind a header that is not read.
            acks = ACKS_HEADER + acks[HEADER_BYTES:]
            problems.append(f"{acks_path}: {unread} bytes cannot be read; messages that they "
                            "settled come again")
    acks_data = acks
    if read_settled(acks_data, len(acks), store.folder.incarnation, number, &settled):
        raise MemoryError("no memory for settled positions")
    if settled.unsound:
        problems.append(f"{acks_path}: {settled.unsound} entries are damaged; messages that they "
                        "settled may come again")
    content = Content(0, 0, 0, 0, 0, 0, 0, False, False, 0)
    skips = []
    gaps = []
    if has_summary:
        size = disk.size(path)
        has_summary = from_summary(
            store, summary_at(summary_path), number, &settled, &content
        ) and content.length == size
        if has_summary:
            if content.references:
                store.refs.bodies.count_known(content.references)
            skips = [
                (settled.spans[i].position, settled.spans[i].length) for i in range(settled.count)]
        else:
            content = Content(0, 0, 0, 0, 0, 0, 0, False, False, 0)
            disk.unlink(summary_path)
    if not has_summary:
        from_records(
            store, disk.read(path), path, number, &settled, skips, gaps, &content, is_last,
            problems)
    acks_length = settled.end
    # Any of them may have been delivered.
    watermark = content.length if unread else settled.watermark
    returns = [
        (settled.returns[i].position, settled.returns[i].length)
        for i in range(settled.return_count)]
    settled_free(&settled)
    if content.live == 0:
        if content.damaged and not gaps and not skips:
            return 0
        disk.unlink(path)
        store.persister.background.outlive(directory, [acks_path, summary_path])
        return 0
    segment = <Segment*> calloc(1, sizeof(Segment))
    if segment == NULL:
        raise MemoryError("no memory for a segment")
    segment.number = number
    segment.count = content.count
    segment.settled = segment.passed = content.count - content.live
    segment.length = content.length
    segment.sealed = segment.recovered = True
    segment.damaged = content.damaged
    segment.summarised = has_summary or not content.whole or content.damaged
    segment.body_bytes = content.body_bytes
    segment.overhead = content.overhead
    segment.flags = content.flags
    segment.references = segment.referring = content.references
    store.refs.count += content.references
    segment.watermark = segment.watermark_safe = segment.watermark_flying = watermark
    segment.recovered_watermark = watermark
    segment.messages = file_new(path)
    starts = [start for start, _ in skips] if returns else []
    for position, count in returns:
        i = bisect.bisect(starts, position)
        if i == 0 or position >= skips[i - 1][0] + skips[i - 1][1]:
            if store.returns is None:
                store.returns = {}
            store.returns[<uint64_t> number << 32 | <uint32_t> position] = count
    if acks_length:
        segment.acks = file_new(acks_path)
        segment.acks_length = acks_length
        if <size_t> len(acks) > acks_length:
            disk.truncate(acks_path, acks_length)
    elif has_acks:
        disk.unlink(acks_path)
    if skips:
        segment.skips = <Span*> malloc(len(skips) * sizeof(Span))
        if segment.skips == NULL:
            raise MemoryError("no memory for settled positions")
        segment.skip_count = len(skips)
        for i in range(segment.skip_count):
            segment.skips[i].position, segment.skips[i].length = skips[i]
            segment.settled_bytes += segment.skips[i].length
        taken = disk.allocated(path)
        segment.holes = max(0, <int> segment.length - <int> taken)
    segment.punch_at = punch_when(segment)
    store.segments.append(segment)
    if segment.flags & EXPIRES:
        store.any_expires = True
    # What is in quarantine is settled, so that it is not found again at the next start.
    for position, length in gaps:
        store.note(segment, position, length)
    if not segment.summarised or segment.settled_bytes >= segment.punch_at:
        store.persister.background.attend(store)
    store.ready += content.live
    store.total += content.live
    store.ready_bytes += content.live_bytes
    store.total_bytes += content.live_bytes
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
