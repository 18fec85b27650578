# cython: language_level=3
"""Puts the items of a sealed file in order: those of a slot become one array, newest first, so that
a key is found with one read instead of one for each item of a chain.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from broker.kernel.checksum cimport crc32c_of, place_seed
from broker.store.keys.compacted cimport mark
from broker.store.keys.layout cimport (
    CHECK_BYTES, COMPACTED_MAGIC, CompactedHead, CompactItem, FILTER_BITS, FORMAT_VERSION, Item,
    ITEMS_A_SLOT, PAGE, SLOT_BYTES, StreamRow,
)
from broker.store.keys.unsealed cimport Unsealed


cdef extern from * nogil:
    """
    #define FETCH(place) __builtin_prefetch((place), 1)
    """
    void FETCH(const void* place)


cdef enum:
    AHEAD = 8                    # items whose places are on their way from memory


cdef uint32_t pages_for(uint64_t size) noexcept nogil:
    return <uint32_t> ((size + PAGE - 1) // PAGE)


def compacted(Unsealed source) -> bytes:
    """The content of the compacted file. Raises MemoryError. For a thread: Python's lock is free
    meanwhile."""
    cdef CompactedHead head
    cdef bytes content
    cdef uint8_t* data
    cdef uint32_t slot_pages
    memset(&head, 0, sizeof(head))
    head.magic = COMPACTED_MAGIC
    head.version = FORMAT_VERSION
    head.file_id = source.file_id
    head.serial = source.serial
    memcpy(head.secret, <const char*> source.secret, 16)
    head.begin_ms = source.begin_ms
    head.first_ms = source.first_ms
    head.last_ms = source.last_ms
    head.number = source.number
    head.items = source.count
    head.slots = slots_for(source)
    slot_pages = pages_for(<uint64_t> head.slots * SLOT_BYTES)
    head.streams = source.row_count
    head.filter_pages = pages_for(<uint64_t> source.count * FILTER_BITS // 8 + 1)
    head.slots_at = PAGE * pages_for(
        sizeof(CompactedHead) + head.streams * sizeof(StreamRow)
        + <uint64_t> (slot_pages + head.filter_pages + 1) * CHECK_BYTES)
    head.filter_at = head.slots_at + slot_pages * PAGE
    head.arrays_at = head.filter_at + head.filter_pages * PAGE
    with nogil:
        head.slots_used = used_slots(source, head.slots)
    head.length = (<uint64_t> head.arrays_at + <uint64_t> head.items * sizeof(CompactItem)
                   + <uint64_t> head.slots_used * CHECK_BYTES)
    content = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> head.length)
    data = <uint8_t*> PyBytes_AS_STRING(content)
    with nogil:
        memset(data, 0, head.arrays_at)
        memcpy(data + sizeof(CompactedHead), source.table, head.streams * sizeof(StreamRow))
        put_arrays(source, &head, data)
        put_filter(source, &head, data)
        put_checks(&head, data)
    return content


cdef uint32_t slots_for(Unsealed source) noexcept nogil:
    """How many slots the items need, a power of two: a file that was sealed with few items, as when
    a stream was deleted, has fewer than one that became full."""
    cdef uint32_t slots = 1
    while slots < source.slot_count and slots < source.count // ITEMS_A_SLOT + 1:
        slots *= 2
    return slots


cdef uint32_t used_slots(Unsealed source, uint32_t slots) noexcept nogil:
    """How many of `slots` slots have items: each takes those of several of the source."""
    cdef uint32_t used = 0
    cdef uint32_t i, j
    for i in range(slots):
        for j in range(source.slot_count // slots):
            if source.slots[i + j * slots] != 0:
                used += 1
                break
    return used


cdef void put_arrays(Unsealed source, CompactedHead* head, uint8_t* data) noexcept nogil:
    """The arrays in the order of their slots, the newest item first, each with its checksum. Chains
    are not followed: each of their items would wait for memory. Lengths are counted first, and then
    the items go to their places, which are fetched from memory ahead."""
    cdef uint32_t* slots = <uint32_t*> (data + head.slots_at)
    cdef uint64_t mask = head.slots - 1
    cdef const Item* items = source.items
    cdef uint32_t place = head.arrays_at
    cdef uint32_t count = source.count
    cdef uint32_t* slot
    cdef uint8_t* array
    cdef uint32_t i
    for i in range(count):
        slots[2 * (items[i].hash & mask) + 1] += sizeof(CompactItem)
    for i in range(head.slots):
        if slots[2 * i + 1]:
            slots[2 * i] = place
            place += slots[2 * i + 1] + CHECK_BYTES
    for i in range(count, 0, -1):
        if i > 2 * AHEAD:
            FETCH(&slots[2 * (items[i - 1 - 2 * AHEAD].hash & mask)])
            FETCH(data + slots[2 * (items[i - 1 - AHEAD].hash & mask)])
        slot = &slots[2 * (items[i - 1].hash & mask)]
        memcpy(data + slot[0], &items[i - 1], sizeof(CompactItem))
        slot[0] += sizeof(CompactItem)
    for i in range(head.slots):
        slot = &slots[2 * i]
        if slot[1]:
            slot[0] -= slot[1]
            array = data + slot[0]
            (<uint32_t*> (array + slot[1]))[0] = crc32c_of(
                place_seed(head.file_id, i, 1), array, slot[1])
            slot[1] += CHECK_BYTES


cdef void put_filter(Unsealed source, CompactedHead* head, uint8_t* data) noexcept nogil:
    cdef uint32_t i
    for i in range(source.count):
        mark(data + head.filter_at, head.filter_pages, source.items[i].hash)


cdef void put_checks(CompactedHead* head, uint8_t* data) noexcept nogil:
    """A checksum for each page of slots and filter, and one for the head with all of these."""
    cdef uint8_t* checks = data + sizeof(CompactedHead) + head.streams * sizeof(StreamRow)
    cdef uint32_t pages = (head.arrays_at - head.slots_at) // PAGE
    cdef uint32_t i
    cdef uint32_t* check = <uint32_t*> checks
    for i in range(pages):
        check[i] = crc32c_of(place_seed(head.file_id, i, 2), data + head.slots_at + i * PAGE, PAGE)
    memcpy(data, head, sizeof(CompactedHead))
    check[pages] = crc32c_of(0, data, <uint8_t*> (check + pages) - data)
