# cython: language_level=3
"""Finds a queue's messages again: reads its segments and acks, checks every record, and sets the
store up to go on in a fresh segment.

A record that does not check is no end: the search goes on for the next one whose seeded CRC is
right, and what lies between is reported and skipped. Only a tail with no sound record behind it is
cut.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, malloc

from broker.kernel.message cimport EXPIRES
from broker.store import disk
from broker.store.disk cimport file_new
from broker.store.queue_store cimport QueueStore
from broker.store.segments cimport Segment, Skip
from broker.store.record cimport (
    ACK_BYTES, ACK_RUN, ACK_SETTLED, ACK_VALUE_MASK, ACK_WATERMARK, ACKS_MAGIC, FORMAT_VERSION,
    HEADER_BYTES, SEGMENT_MAGIC, AckEntry, RecordHead, ack_check, record_check, record_fits,
)


cdef struct Scan:
    const uint8_t* data
    size_t length
    uint64_t incarnation
    uint32_t segment


cdef bint sound(Scan* scan, size_t at) noexcept nogil:
    cdef const RecordHead* head = <const RecordHead*> (scan.data + at)
    return record_fits(scan.data + at, scan.length - at) and head.check == record_check(
        scan.data + at, scan.incarnation, scan.segment, <uint32_t> at)


cdef size_t next_sound(Scan* scan, size_t at) noexcept nogil:
    """The first position from `at` on with a sound record, or the end of the data."""
    while at < scan.length:
        if sound(scan, at):
            return at
        at += 1
    return scan.length


def _header(data: bytes, magic: int, path: str) -> bool:
    """Whether the file has a header of this version. Raises ValueError for one of another
    version."""
    if len(data) < HEADER_BYTES or data[:HEADER_BYTES] == bytes(HEADER_BYTES):
        return False
    if int.from_bytes(data[:4], "little") != magic:
        return False
    version = int.from_bytes(data[4:8], "little")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {version}; this program reads version {FORMAT_VERSION}")
    return True


def read_acks(path: str, incarnation: int, number: int) -> tuple:
    """(settled positions -> lengths, runs [(position, length)], positions -> how often they came
    back, watermark, sound bytes) of an acks file."""
    cdef dict settled = {}
    cdef dict returns = {}
    cdef list runs = []
    cdef uint32_t watermark = 0
    cdef size_t at = HEADER_BYTES
    cdef size_t end = 0
    cdef AckEntry* entry
    cdef uint32_t kind, value
    data = disk.read(path) if disk.exists(path) else b""
    if not _header(data, ACKS_MAGIC, path):
        return settled, runs, returns, 0, 0
    cdef const uint8_t* bytes_ = data
    end = HEADER_BYTES
    while at + ACK_BYTES <= <size_t> len(data):
        entry = <AckEntry*> (bytes_ + at)
        at += ACK_BYTES
        if entry.check != ack_check(entry, incarnation, number):
            continue
        end = at
        kind = entry.word >> 30
        value = entry.word & ACK_VALUE_MASK
        if kind == ACK_SETTLED:
            settled[entry.position] = value
        elif kind == ACK_RUN:
            runs.append((entry.position, value))
        elif kind == ACK_WATERMARK:
            watermark = entry.position
        else:
            returns[entry.position] = value
    return settled, runs, returns, watermark, end


def recover(QueueStore store) -> list:
    """Fills an empty store from its directory. Returns sentences about what was wrong, for the log
    and the UI."""
    cdef QueueStore part
    problems = []
    directory = store.directory
    names = disk.listdir(directory)
    store.directory_made = bool(names)
    numbers = sorted(
        int(name[5:]) for name in names if name.startswith("msgs.") and name[5:].isdigit())
    for name in names:
        if name.startswith("acks.") and name[5:].isdigit() and int(name[5:]) not in numbers:
            disk.unlink(f"{directory}/{name}")
    for number in numbers:
        part = store.part(number)
        if part is None:
            problems.append(f"{directory}/msgs.{number:010d} is no file of this queue")
            continue
        part.directory_made = True
        _recover_segment(part, directory, number, problems)
        part.next_number = number + 1
    store.recovered()
    return problems


cdef int _recover_segment(QueueStore store, str directory, uint32_t number,
                          list problems) except -1:
    cdef Scan scan
    cdef size_t at = HEADER_BYTES
    cdef size_t following
    cdef uint32_t length
    cdef uint64_t live = 0
    cdef uint64_t live_bytes = 0
    cdef uint32_t count = 0
    cdef uint32_t settled_count = 0
    cdef Segment* segment
    cdef Segment* last
    cdef uint32_t i
    path = f"{directory}/msgs.{number:010d}"
    acks_path = f"{directory}/acks.{number:010d}"
    data = disk.read(path)
    settled, runs, returns, watermark, acks_length = read_acks(
        acks_path, store.incarnation, number)
    skips = []
    if _header(data, SEGMENT_MAGIC, path):
        scan.data = data
        scan.length = len(data)
        scan.incarnation = store.incarnation
        scan.segment = number
        while at < scan.length:
            if not sound(&scan, at):
                with nogil:
                    following = next_sound(&scan, at + 1)
                if following == scan.length:
                    break
                problems.append(
                    f"{path}: {following - at} unreadable bytes at position {at}, skipped")
                skips.append((at, following - at))
                at = following
            length = (<const RecordHead*> (scan.data + at)).length + 4
            count += 1
            if at in settled:
                settled_count += 1
                skips.append((at, length))
            elif runs and any(position <= at < position + run for position, run in runs):
                settled_count += 1
                skips.append((at, length))
            else:
                live += 1
                live_bytes += (<const RecordHead*> (scan.data + at)).body_length
                if (<const RecordHead*> (scan.data + at)).flags & EXPIRES:
                    store.any_expires = True
            at += length
        if at < scan.length:
            problems.append(f"{path}: cut {scan.length - at} bytes behind the last sound record")
            disk.truncate(path, at)
    if live == 0:
        disk.unlink(path)
        disk.unlink(acks_path)
        return 0
    segment = <Segment*> calloc(1, sizeof(Segment))
    if segment == NULL:
        raise MemoryError("no memory for a segment")
    segment.number = number
    segment.count = count
    segment.settled = settled_count
    segment.length = <uint32_t> at
    segment.sealed = True
    segment.watermark = segment.watermark_safe = segment.watermark_flying = watermark
    segment.recovered_watermark = watermark
    segment.messages = file_new(path)
    for position, count in returns.items():
        if position not in settled:
            if store.returns is None:
                store.returns = {}
            store.returns[<uint64_t> number << 32 | <uint32_t> position] = count
    if acks_length:
        segment.acks = file_new(acks_path)
        segment.acks_length = acks_length
        if disk.size(acks_path) > acks_length:
            disk.truncate(acks_path, acks_length)
    else:
        disk.unlink(acks_path)
    if skips:
        segment.skips = <Skip*> malloc(len(skips) * sizeof(Skip))
        if segment.skips == NULL:
            raise MemoryError("no memory for settled positions")
        segment.skip_count = len(skips)
        for i in range(segment.skip_count):
            segment.skips[i].position, segment.skips[i].length = skips[i]
    if store.head == NULL:
        store.head = segment
        store.cursor = segment
        store.cursor_position = HEADER_BYTES
    else:
        last = store.head
        while last.next != NULL:
            last = last.next
        last.next = segment
    store.ready += live
    store.total += live
    store.ready_bytes += live_bytes
    store.total_bytes += live_bytes
    return 0
