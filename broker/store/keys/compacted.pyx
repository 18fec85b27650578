# cython: language_level=3
"""Reads a compacted file of an index, which may lie here or in an object store: this module says
which bytes to get, and what they mean. Everything is checked before it is believed.
"""

import struct

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.checksum cimport crc32c_of, place_seed
from broker.kernel.mixing cimport mixed
from broker.store.keys.candidates cimport Candidates
from broker.store.keys.layout cimport (
    CHECK_BYTES, COMPACTED_MAGIC, CompactedHead, CompactItem, FORMAT_VERSION, PAGE, PROBES,
    SLOT_BYTES, STREAMS_MAX, StreamRow, base_of, held,
)
from broker.store.keys.rows import Damaged, Row

cdef enum:
    PAGE_BITS = PAGE * 8
    SLOTS_A_PAGE = PAGE // SLOT_BYTES
    PAGES_MAX = 1 << 20

HEAD_BYTES = sizeof(CompactedHead)
PAGE_BYTES = PAGE
SLOT = struct.Struct("<II")


cdef uint32_t page_of(uint64_t hash, uint32_t pages) noexcept nogil:
    """The page of the filter that a key belongs to: one read answers for it."""
    return <uint32_t> scaled_to(mixed(hash ^ <uint64_t> 0x9E3779B97F4A7C15), pages)


cdef void mark(uint8_t* filter, uint32_t pages, uint64_t hash) noexcept nogil:
    cdef uint8_t* page = filter + <uint64_t> page_of(hash, pages) * PAGE
    cdef uint64_t bits = mixed(hash)
    cdef uint64_t step = (bits >> 32) | 1
    cdef uint32_t bit
    cdef int _each
    for _each in range(PROBES):
        bit = <uint32_t> (bits & (PAGE_BITS - 1))
        page[bit >> 3] |= <uint8_t> (1 << (bit & 7))
        bits += step


cdef bint marked(const uint8_t* page, uint64_t hash) noexcept nogil:
    cdef uint64_t bits = mixed(hash)
    cdef uint64_t step = (bits >> 32) | 1
    cdef uint32_t bit
    cdef int _each
    for _each in range(PROBES):
        bit = <uint32_t> (bits & (PAGE_BITS - 1))
        if not page[bit >> 3] >> (bit & 7) & 1:
            return False
        bits += step
    return True


def head_bytes(bytes data) -> int:
    """How many bytes from the beginning of a file its head has, by the first `HEAD_BYTES`; 0 if no
    file of an index begins so."""
    cdef CompactedHead head
    if <size_t> len(data) < sizeof(head):
        return 0
    memcpy(&head, <const char*> data, sizeof(head))
    if (head.magic != COMPACTED_MAGIC or head.version != FORMAT_VERSION
            or head.streams > STREAMS_MAX or head.arrays_at < head.slots_at
            or (head.arrays_at - head.slots_at) // PAGE > PAGES_MAX):
        return 0
    return sizeof(head) + head.streams * sizeof(StreamRow) + CHECK_BYTES * (
        (head.arrays_at - head.slots_at) // PAGE + 1)


cdef class Compacted:
    """One file by its head: `data` begins with it. Raises Damaged."""

    def __init__(self, bytes data, str name):
        cdef StreamRow row
        cdef uint32_t _each
        cdef size_t size = head_bytes(data)
        cdef const uint8_t* start = data
        cdef size_t at = sizeof(CompactedHead)
        self.name = name
        if not size or <size_t> len(data) < size or (
                (<const uint32_t*> (start + size - CHECK_BYTES))[0]
                != crc32c_of(0, start, size - CHECK_BYTES)):
            raise Damaged(f"{name}: its head fails the checksum")
        memcpy(&self.head, start, at)
        self.secret = (<const char*> self.head.secret)[:16]
        self.rows = []
        for _each in range(self.head.streams):
            memcpy(&row, start + at, sizeof(row))
            at += sizeof(row)
            self.rows.append(Row(
                row.incarnation, row.items, row.first_segment, row.last_segment,
                (row.begin_segment, row.begin_position), (row.next_segment, row.next_position)))
        self.incarnations = [each.incarnation for each in self.rows]
        self.checks = data[at:size - CHECK_BYTES]

    number = property(lambda self: (<Compacted> self).head.number)
    serial = property(lambda self: (<Compacted> self).head.serial)
    items = property(lambda self: (<Compacted> self).head.items)
    begin_ms = property(lambda self: (<Compacted> self).head.begin_ms)
    first_ms = property(lambda self: (<Compacted> self).head.first_ms)
    last_ms = property(lambda self: (<Compacted> self).head.last_ms)
    length = property(lambda self: (<Compacted> self).head.length)
    slots_used = property(lambda self: (<Compacted> self).head.slots_used)
    arrays_at = property(lambda self: (<Compacted> self).head.arrays_at)

    cdef int check_page(self, bytes page, uint32_t number) except -1:
        """`number`: of all pages of slots and filter."""
        cdef const uint8_t* data = page
        cdef const uint8_t* checks = self.checks
        if len(page) != PAGE or (<const uint32_t*> (checks + <size_t> number * CHECK_BYTES))[0] != (
                crc32c_of(place_seed(self.head.file_id, number, 2), data, PAGE)):
            raise Damaged(f"{self.name}: page {number} of slots and filter fails the checksum")
        return 0

    def filter_place(self, uint64_t hash) -> int:
        """Where the page of the filter for a hash begins, of `PAGE_BYTES`."""
        return self.head.filter_at + <uint64_t> page_of(hash, self.head.filter_pages) * PAGE

    def may_hold(self, uint64_t hash, bytes page) -> bool:
        """False: the file has no item of this hash. Raises Damaged."""
        self.check_page(page, (self.head.filter_at - self.head.slots_at) // PAGE
                        + page_of(hash, self.head.filter_pages))
        return marked(page, hash)

    def slot_place(self, uint64_t hash) -> int:
        """Where the page with a hash's slot begins, of `PAGE_BYTES`."""
        return self.head.slots_at + (hash & (self.head.slots - 1)) // SLOTS_A_PAGE * PAGE

    def array_of(self, uint64_t hash, bytes page) -> tuple:
        """(first address, length in bytes) of a hash's array; (0, 0): there is none. Raises
        Damaged."""
        cdef uint32_t slot = <uint32_t> (hash & (self.head.slots - 1))
        self.check_page(page, slot // SLOTS_A_PAGE)
        return SLOT.unpack_from(page, slot % SLOTS_A_PAGE * SLOT_BYTES)

    def find(self, uint64_t hash, bytes array, int64_t first_ms, int64_t last_ms, streams):
        """The items of a hash in its array, between two times, both included, of these incarnations
        (None: all). Raises Damaged."""
        cdef int64_t base = base_of(self.head.begin_ms)
        cdef uint32_t low = held(first_ms, base)
        cdef uint32_t high = held(last_ms, base)
        cdef bytes wanted = bytes(
            [streams is None or each in streams for each in self.incarnations])
        cdef const uint8_t* takes = wanted
        cdef const uint8_t* data = array
        cdef size_t size = len(array)
        cdef uint32_t slot = <uint32_t> (hash & (self.head.slots - 1))
        cdef Candidates found = Candidates(base, self.incarnations)
        cdef CompactItem item
        cdef bint has_memory = True
        cdef bint is_sound = (
            size >= CHECK_BYTES and (size - CHECK_BYTES) % sizeof(CompactItem) == 0)
        cdef size_t at
        if is_sound:
            size -= CHECK_BYTES
            with nogil:
                is_sound = (<const uint32_t*> (data + size))[0] == crc32c_of(
                    place_seed(self.head.file_id, slot, 1), data, size)
                at = 0
                while is_sound and has_memory and at < size:
                    memcpy(&item, data + at, sizeof(item))
                    at += sizeof(item)
                    if (item.hash == hash and low <= item.ms <= high
                            and item.stream < self.head.streams and takes[item.stream]):
                        has_memory = found.add(
                            item.ms, item.stream, item.segment, item.position, item.size)
                found.sort()
        if not is_sound:
            raise Damaged(f"{self.name}: the array of slot {slot} fails the checksum")
        if not has_memory:
            raise MemoryError("no memory for what an index found")
        return found
