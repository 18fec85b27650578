# cython: language_level=3
"""Recovers a stream: takes the summary of each segment from its meta file, or reads the segment if
that is missing or does not match, and prepares the store to continue in a fresh segment.

A record that fails its checksum does not end recovery: it searches for the next record whose seeded
CRC is right, and copies what lies between to quarantine. A tail without a sound record behind it is
cut, and the offsets that it could have held are not used again. A damaged segment gets no meta
file, so that every start reports it.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc

from broker.kernel.buffer cimport load64
from broker.kernel.message cimport Message
from broker.store.files import disk
from broker.store.files.disk cimport file_new
from broker.store.files.record cimport (
    FORMAT_VERSION, HEADER_BYTES, MARK, OFFSET_BYTES, RECORD_FIXED, RecordHead, SEGMENT_MAGIC,
    record_view,
)
from broker.store.files.shared_headers cimport Front, take_front
from broker.store.files.sound_search cimport RecordSearch
from broker.store.log.recovery import summary_at
from broker.store.log.segments cimport Segment
from broker.store.streams.store cimport StreamStore
from broker.store.streams.summary cimport Summary
from broker.store.streams.summary import decode
from broker.store.streams.tier_list import NAME as TIER_LIST, TierList

cdef enum:
    RECORD_LEAST = RECORD_FIXED + OFFSET_BYTES + 2


def recover(StreamStore store) -> list:
    """Fills an empty store from its directory. Returns sentences about what was wrong, for the log
    and the UI."""
    cdef Summary summary
    cdef list problems = []
    directory = store.directory
    names = disk.listdir(directory)
    store.folder.made = bool(names)
    kinds = files_of(store, names, problems)
    local = kinds["msgs"]
    last = max(local, default=0)
    tiered = tiered_segments(store, problems)
    for number in sorted({*local, *tiered}):
        try:
            if number not in local or is_other(directory, number, tiered, problems):
                recover_cold(store, tiered[number])
            else:
                recover_segment(store, directory, number, number == last, problems)
        except OSError as error:
            if number in tiered:
                problems.append(
                    f"{directory}/msgs.{number:010d} cannot be read: {error.strerror}; its object "
                    "is read instead")
                recover_cold(store, tiered[number])
                store.segments.next_number = number + 1
                continue
            path = f"{directory}/msgs.{number:010d}"
            problems.append(
                f"{path} cannot be read: {error.strerror}; it was left alone, and its messages are "
                "missing until it can be read at a start")
            # The most it can hold: these offsets are never used again.
            store.next_offset += disk.size(path) // RECORD_LEAST + 1
        store.segments.next_number = number + 1
    note_tiered(store, tiered)
    drop_purged(store)
    tell_missing(store, problems)
    for summary in store.summaries:
        store.total += summary.count
        store.total_bytes += summary.body_bytes
        store.last_timestamp = max(store.last_timestamp, summary.last_timestamp)
        if not summary.on_disk and not summary.cold and summary.gaps is None:
            store.unwritten.append(summary)
        store.count_tiered(summary, 1)
    if store.summaries:
        summary = <Summary> store.summaries[len(store.summaries) - 1]
        store.safe_number = store.flying_number = summary.number
        store.safe_position = store.flying_position = summary.length
    store.safe_offset = store.flying_offset = store.next_offset
    store.offsets.recover(sorted(kinds["offsets"]), store.next_offset, problems)
    if store.unwritten:
        store.persister.add(store)
    return problems


cdef dict files_of(StreamStore store, list names, list problems):
    """The numbers of the files of each kind; leftovers of other files are removed."""
    cdef dict kinds = {"msgs": set(), "meta": set(), "offsets": set()}
    for name in names:
        kind, _, digits = name.partition(".")
        if name == TIER_LIST:
            store.listed = TierList(store.persister, store.directory)
        elif kind in kinds and len(digits) == 10 and digits.isascii() and digits.isdigit():
            kinds[kind].add(int(digits))
        elif name.endswith(".tmp"):
            disk.unlink(f"{store.directory}/{name}")
        else:
            problems.append(f"{store.directory}/{name} is not known here; it was left alone")
    for number in kinds["meta"] - kinds["msgs"]:
        disk.unlink(f"{store.directory}/meta.{number:010d}")
    return kinds


cdef dict tiered_segments(StreamStore store, list problems):
    """The summaries of segments in the object store, by number, as their list has them."""
    cdef Summary summary
    cdef dict found = {}
    if store.listed is None:
        return found
    try:
        for row in store.listed.recover(problems):
            summary = decode(row.summary, store.incarnation, row.number, row.tiered.length)
            if summary is None:
                store.listed.is_whole = False
                problems.append(
                    f"{store.listed.path}: what it says of segment {row.number} does not fit this "
                    "stream; its messages are missing, and its object is left alone")
                continue
            summary.tiered = row.tiered
            summary.on_disk = False
            summary.cold = True
            found[row.number] = summary
    except (OSError, ValueError) as error:
        store.listed.is_whole = False
        problems.append(
            f"{store.listed.path} cannot be read: {error}; the messages of this stream that are "
            "only in the object store are missing until it can be read at a start")
    return found


cdef bint is_other(str directory, uint32_t number, dict tiered, list problems) except -1:
    """Whether the local file of a segment is not what was uploaded."""
    cdef Summary summary = tiered.get(number)
    path = f"{directory}/msgs.{number:010d}"
    if summary is None or disk.size(path) == summary.length:
        return False
    problems.append(
        f"{path} is not as long as when it was uploaded; its object is read instead, and the file "
        "was left alone")
    return True


cdef int recover_cold(StreamStore store, Summary summary) except -1:
    """Adds a segment that only the object store holds."""
    store.summaries.append(summary)
    store.next_offset = max(store.next_offset, summary.end_offset)
    return 0


cdef int note_tiered(StreamStore store, dict tiered) except -1:
    """Segments on this disk whose objects are there, too."""
    cdef Summary summary
    for summary in store.summaries:
        if summary.tiered is None and summary.number in tiered:
            summary.tiered = tiered[summary.number].tiered
    return 0


cdef int recover_segment(StreamStore store, str directory, uint32_t number, bint is_last,
                         list problems) except -1:
    """Adds one segment to the store, or removes it if it is empty."""
    cdef Summary summary = None
    cdef Segment* segment
    path = f"{directory}/msgs.{number:010d}"
    meta = f"{directory}/meta.{number:010d}"
    if disk.exists(meta):
        summary = decode(summary_at(meta), store.incarnation, number, disk.size(path))
        if summary is not None:
            store.next_offset = max(store.next_offset, summary.end_offset)
        else:
            # Otherwise the quarantine would not list it if the segment is removed before that.
            disk.unlink(meta)
    if summary is None:
        summary = scan(store, path, number, is_last, problems)
    if summary.count == 0 and not summary.begins_anew:
        disk.unlink(path)
        disk.unlink(meta)
        return 0
    segment = <Segment*> calloc(1, sizeof(Segment))
    if segment == NULL:
        raise MemoryError("no memory for a segment")
    segment.number = number
    segment.count = summary.count + 1
    segment.length = summary.length
    segment.sealed = summary.sealed = True
    segment.messages = file_new(path)
    store.segments.append(segment)
    store.summaries.append(summary)
    return 0


cdef Summary scan(StreamStore store, str path, uint32_t number, bint is_last, list problems):
    """The summary of a segment by reading all of it; cuts a torn end. Of the last segment that is
    what a power cut leaves, of another one it is damage."""
    cdef Summary summary = Summary(number, store.next_offset)
    cdef bytes content = disk.read(path)
    cdef RecordSearch search = RecordSearch(content, store.incarnation, number)
    cdef const uint8_t* data = search.data
    cdef size_t at = HEADER_BYTES
    cdef size_t following
    cdef size_t length = search.length
    cdef uint32_t record_length
    cdef uint64_t offset
    cdef Front front
    cdef Message message
    if not has_header(content) and length > HEADER_BYTES:
        problems.append(f"{path}: its header is damaged; the records are read all the same")
    while at < length:
        following = search.next(at, length)
        if following == length:
            break
        if following > at:
            problems.append(
                f"{path}: {following - at} unreadable bytes at position {at}; they are in "
                f"{store.persister.quarantine.directory}")
            set_aside(store, summary, <uint32_t> at, content[at:following])
            at = following
        record_view(data + at, &message)
        record_length = (<const RecordHead*> (data + at)).length + 4
        if take_front(&message, &front):
            summary.add(front.offset, message.timestamp, <uint32_t> at, record_length,
                        message.body_length)
            if store.note_message != NULL:
                store.note_message(summary, message.properties, message.properties_length)
            store.next_offset = max(store.next_offset, front.offset + 1)
        elif message.flags & MARK and message.properties_length >= OFFSET_BYTES + 2:
            offset = load64(message.properties)
            summary.begins_anew = True
            summary.first_offset = summary.end_offset = offset
            summary.first_timestamp = summary.last_timestamp = message.timestamp
            store.next_offset = max(store.next_offset, offset)
        at += record_length
        summary.length = <uint32_t> at
    if at < length:
        problems.append(f"{path}: cut {length - at} bytes behind the last sound record")
        if not is_last or summary.count == 0 and length > HEADER_BYTES:
            set_aside(store, summary, <uint32_t> at, content[at:])
        disk.truncate(path, at)
        # It may have held confirmed messages: their offsets are never used again.
        store.next_offset += (length - at) // RECORD_LEAST + 1
    return summary


cdef int set_aside(StreamStore store, Summary summary, uint32_t position, bytes data) except -1:
    """These bytes of a segment are no record."""
    store.persister.quarantine.take(
        store.incarnation, summary.number, position, data, len(data))
    return store.note_gap(summary, position, len(data))


cdef bint has_header(bytes content):
    """Whether a file begins as a segment of this version does."""
    return content[:HEADER_BYTES] == (
        SEGMENT_MAGIC.to_bytes(4, "little") + FORMAT_VERSION.to_bytes(4, "little"))


cdef int tell_missing(StreamStore store, list problems) except -1:
    """Segments between others that are no more."""
    cdef Summary summary
    cdef Summary before = None
    for summary in store.summaries:
        if (before is not None and summary.number > before.number + 1
                and summary.first_offset > before.end_offset):
            problems.append(
                f"{store.directory}: between msgs.{before.number:010d} and "
                f"msgs.{summary.number:010d} segments are missing, and the messages from offset "
                f"{before.end_offset} to {summary.first_offset - 1}")
        before = summary
    return 0


cdef int drop_purged(StreamStore store) except -1:
    """Messages before the last mark were purged: they are removed at the first sync."""
    cdef Py_ssize_t index
    for index in range(len(store.summaries) - 1, 0, -1):
        if (<Summary> store.summaries[index]).begins_anew:
            store.condemned = store.summaries[:index]
            del store.summaries[:index]
            for summary in store.condemned:
                summary.dropped = True
            break
    return 0
