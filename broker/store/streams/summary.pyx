# cython: language_level=3
"""What is known of one segment of a stream without reading it: offsets, times, anchors to seek by,
and a Bloom filter of the filter values in it.

A sealed segment's summary is kept beside it in `meta.N` (docs/formats/stream.md). It is a cache:
written without a sync, and the segment is read again where it does not fit.
"""

import struct

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from broker.kernel.checksum import crc32c, seed_of
from broker.store.files.record cimport HEADER_BYTES

MAGIC = b"LVRT\x01\x00\x00\x00"
# Incarnation, segment, length of the segment, first and end offset, count, messages without a
# value, body bytes, first and last time, whether it begins anew, bytes of the filter, anchors.
HEAD = struct.Struct("<QIIQQIIQqqBxHI")
ANCHOR = struct.Struct("<QqI")
CHECK = struct.Struct("<I")

cdef enum:
    PROBES = 6


cdef uint64_t hash_of(const uint8_t* value, size_t length) noexcept nogil:
    """FNV-1a, mixed as in SplitMix64, so that both halves are of use."""
    cdef uint64_t hash = 0xCBF29CE484222325
    cdef uint64_t prime = 0x100000001B3
    cdef size_t i
    for i in range(length):
        hash = (hash ^ value[i]) * prime
    hash = (hash ^ (hash >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    hash = (hash ^ (hash >> 27)) * <uint64_t> 0x94D049BB133111EB
    return hash ^ (hash >> 31)


cdef class Summary:
    """The summary of segment `number`, empty as yet."""

    def __init__(self, uint32_t number, uint64_t first_offset):
        self.number = number
        self.first_offset = self.end_offset = first_offset
        self.length = HEADER_BYTES

    def __dealloc__(self):
        free(self.values)
        free(self.anchors)

    cdef int add(self, uint64_t offset, int64_t timestamp, uint32_t position, uint32_t length,
                 uint64_t body_bytes, uint32_t count=1) except -1:
        """A message stands at `position`, `length` bytes long; or several do, together."""
        if self.count == 0:
            self.first_offset = offset
            self.first_timestamp = timestamp
        if (self.anchor_count == 0
                or position - self.anchors[self.anchor_count - 1].position >= ANCHOR_EVERY):
            self.anchor(offset, timestamp, position)
        self.count += count
        self.end_offset = offset + count
        self.last_timestamp = timestamp
        self.length = position + length
        self.body_bytes += body_bytes
        return 0

    cdef int anchor(self, uint64_t offset, int64_t timestamp, uint32_t position) except -1:
        cdef Anchor* grown
        cdef uint32_t capacity
        if self.anchor_count == self.anchor_capacity:
            capacity = self.anchor_capacity * 2 if self.anchor_capacity else 4
            grown = <Anchor*> realloc(self.anchors, capacity * sizeof(Anchor))
            if grown == NULL:
                raise MemoryError("no memory for a stream's anchors")
            self.anchors = grown
            self.anchor_capacity = capacity
        self.anchors[self.anchor_count].offset = offset
        self.anchors[self.anchor_count].timestamp = timestamp
        self.anchors[self.anchor_count].position = position
        self.anchor_count += 1
        return 0

    cdef int add_value(self, const uint8_t* value, size_t length) except -1:
        """A message of the segment has this filter value."""
        cdef uint64_t hash = hash_of(value, length)
        cdef uint32_t bit, i
        if self.values == NULL:
            self.values = <uint8_t*> calloc(1, FILTER_BYTES)
            if self.values == NULL:
                raise MemoryError("no memory for a stream's filter")
        for i in range(PROBES):
            bit = <uint32_t> (hash + i * (hash >> 32)) % (FILTER_BYTES * 8)
            self.values[bit >> 3] |= <uint8_t> (1 << (bit & 7))
        return 0

    cdef bint may_hold(self, uint64_t hash) noexcept:
        """False: no message of the segment has a value of this hash. True: one may."""
        cdef uint32_t bit, i
        if self.values == NULL:
            return False
        for i in range(PROBES):
            bit = <uint32_t> (hash + i * (hash >> 32)) % (FILTER_BYTES * 8)
            if not self.values[bit >> 3] >> (bit & 7) & 1:
                return False
        return True

    cdef Anchor* anchor_at(self, uint64_t offset) noexcept:
        """The last anchor at or before an offset; NULL: begin at the segment's start."""
        cdef uint32_t low = 0
        cdef uint32_t high = self.anchor_count
        cdef uint32_t middle
        while low < high:
            middle = (low + high) // 2
            if self.anchors[middle].offset <= offset:
                low = middle + 1
            else:
                high = middle
        return &self.anchors[low - 1] if low else NULL

    cdef Anchor* anchor_before(self, int64_t timestamp) noexcept:
        """The last anchor before a time; NULL: begin at the segment's start."""
        cdef uint32_t low = 0
        cdef uint32_t high = self.anchor_count
        cdef uint32_t middle
        while low < high:
            middle = (low + high) // 2
            if self.anchors[middle].timestamp < timestamp:
                low = middle + 1
            else:
                high = middle
        return &self.anchors[low - 1] if low else NULL

    def encode(self, uint64_t incarnation) -> bytes:
        """The content of the segment's meta file."""
        cdef uint32_t i
        cdef uint32_t filter_bytes = FILTER_BYTES if self.values != NULL else 0
        parts = [MAGIC, HEAD.pack(
            incarnation, self.number, self.length, self.first_offset, self.end_offset, self.count,
            self.unfiltered, self.body_bytes, self.first_timestamp, self.last_timestamp,
            self.begins_anew, filter_bytes, self.anchor_count)]
        if filter_bytes:
            parts.append(PyBytes_FromStringAndSize(<char*> self.values, filter_bytes))
        for i in range(self.anchor_count):
            parts.append(ANCHOR.pack(self.anchors[i].offset, self.anchors[i].timestamp,
                                     self.anchors[i].position))
        data = b"".join(parts)
        return data + CHECK.pack(crc32c(data, seed_of(incarnation, self.number, 0)))


def decode(bytes data, uint64_t incarnation, uint32_t number, uint32_t length):
    """The summary that a meta file holds, or None if it is torn, or was written for another segment
    or another length of it."""
    cdef Summary summary
    cdef uint32_t filter_bytes, anchor_count
    cdef bytes body
    at = len(MAGIC) + HEAD.size
    if len(data) < at + CHECK.size or data[:len(MAGIC)] != MAGIC:
        return None
    body = data[:-CHECK.size]
    if CHECK.unpack(data[-CHECK.size:])[0] != crc32c(body, seed_of(incarnation, number, 0)):
        return None
    summary = Summary(number, 0)
    (of, segment, of_length, summary.first_offset, summary.end_offset, summary.count,
     summary.unfiltered, summary.body_bytes, summary.first_timestamp, summary.last_timestamp,
     summary.begins_anew, filter_bytes, anchor_count) = HEAD.unpack_from(body, len(MAGIC))
    if (of, segment, of_length) != (incarnation, number, length):
        return None
    if filter_bytes not in (0, FILTER_BYTES) or len(body) != (
            at + filter_bytes + anchor_count * ANCHOR.size):
        return None
    summary.length = length
    summary.sealed = summary.on_disk = True
    if filter_bytes:
        summary.values = <uint8_t*> calloc(1, FILTER_BYTES)
        if summary.values == NULL:
            raise MemoryError("no memory for a stream's filter")
        memcpy(summary.values, <char*> body + <Py_ssize_t> at, FILTER_BYTES)
    for offset, timestamp, position in ANCHOR.iter_unpack(body[at + filter_bytes:]):
        summary.anchor(offset, timestamp, position)
    return summary
