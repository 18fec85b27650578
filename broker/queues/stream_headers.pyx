# cython: language_level=3
"""Reads headers of messages without creating objects: finds a header, and adds the one that gives a
message's offset in its stream.

All lengths are checked: a malformed header table counts as empty.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

from broker.kernel.buffer cimport Buffer, load16, load32, store16, store32, store64
from broker.kernel.headers cimport find_header
from broker.kernel.message cimport Message
from broker.store.streams.summary cimport Summary

cdef enum:
    HEADERS = 1 << 13            # property flag
    FIELD_BYTES = 25             # of the field that `put_offset` adds


cdef int64_t value_bytes(uint8_t kind, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Bytes of a field's value behind its type letter; -1 for an unknown type or one that does not
    fit."""
    cdef int64_t size
    if kind in (b"t", b"b", b"B"):
        size = 1
    elif kind in (b"s", b"u", b"U"):
        size = 2
    elif kind in (b"I", b"i", b"f"):
        size = 4
    elif kind in (b"l", b"L", b"d", b"T"):
        size = 8
    elif kind == b"D":
        size = 5
    elif kind == b"V":
        size = 0
    elif kind in (b"S", b"x", b"F", b"A"):
        if end - p < 4:
            return -1
        size = <int64_t> 4 + load32(p)
    else:
        return -1
    return size if size <= end - p else -1


cdef const uint8_t* table_of(const uint8_t* properties, uint32_t length) noexcept nogil:
    """The header table, at its length field, or where it would stand; NULL if the properties are
    malformed."""
    cdef const uint8_t* end = properties + length
    cdef const uint8_t* p = properties + 2
    cdef uint16_t flags
    cdef int bit
    if length < 2:
        return NULL
    flags = load16(properties)
    for bit in range(15, 13, -1):
        if flags >> bit & 1:
            if p >= end:
                return NULL
            p += 1 + <uint32_t> p[0]
    if p > end or flags & HEADERS and (end - p < 4 or load32(p) > <size_t> (end - p - 4)):
        return NULL
    return p


cdef void begin_fields(Fields* fields, const uint8_t* properties, uint32_t length) noexcept nogil:
    """All headers of a message are left."""
    cdef const uint8_t* table = table_of(properties, length)
    fields.next = fields.end = table
    if table != NULL and load16(properties) & HEADERS:
        fields.next = table + 4
        fields.end = fields.next + load32(table)


cdef bint next_field(Fields* fields, Header* found) noexcept nogil:
    """Takes the next header; False at the end, or where the table is malformed."""
    cdef const uint8_t* p = fields.next
    cdef int64_t size
    if p >= fields.end:
        return False
    found.start = p
    p += 1 + <uint32_t> p[0]
    size = value_bytes(p[0], p + 1, fields.end) if p < fields.end else -1
    if size < 0:
        fields.next = fields.end
        return False
    found.kind = p[0]
    found.value = p + 1
    found.length = <uint32_t> size
    fields.next = p + 1 + size
    if p[0] in (b"S", b"x"):
        found.value += 4
        found.length -= 4
    return True


cdef bint header(const uint8_t* properties, uint32_t length, const char* name, size_t name_length,
                 Header* found) noexcept nogil:
    """Finds a header by name."""
    cdef uint32_t size = 0
    cdef const uint8_t* field = find_header(
        properties, length, <const uint8_t*> name, <uint8_t> name_length, &size)
    if field == NULL:
        return False
    found.start = field - name_length - 1
    found.kind = field[0]
    found.value = field + 1
    found.length = size - 1
    if found.kind in (b"S", b"x"):
        found.value += 4
        found.length -= 4
    return True


cdef int put_offset(Buffer out, Message* message, uint64_t offset) except -1:
    """Replaces the message's properties by ones with the header x-stream-offset (type l), which
    live in `out`. One that the publisher set is taken out."""
    cdef const uint8_t* properties = message.properties
    cdef const uint8_t* table = table_of(properties, message.properties_length)
    cdef const uint8_t* end = properties + message.properties_length
    cdef const uint8_t* rest
    cdef const uint8_t* old_end
    cdef Header old
    cdef uint32_t size = 0
    cdef uint8_t* p
    if table == NULL:
        return 0
    rest = table
    if load16(properties) & HEADERS:
        size = load32(table)
        rest = table + 4
    out.length = 0
    p = out.room(<size_t> message.properties_length + 4 + FIELD_BYTES)
    memcpy(p, properties, table - properties)
    store16(p, load16(properties) | HEADERS)
    out.length = table - properties + 4
    out.add(b"\x0fx-stream-offsetl", 17)
    store64(out.room(8), offset)
    out.length += 8
    if size and header(properties, message.properties_length, b"x-stream-offset", 15, &old):
        out.add(rest, old.start - rest)
        old_end = old.value + old.length
        size -= <uint32_t> (old_end - old.start)
        rest = old_end
    out.add(rest, end - rest)
    store32(out.data + (table - properties), size + FIELD_BYTES)
    message.properties = out.data
    message.properties_length = <uint32_t> out.length
    return 0


def stamped(bytes properties, uint64_t offset) -> bytes:
    """What `put_offset` makes of a property list."""
    cdef Message message
    cdef Buffer out = Buffer()
    message.properties = <const uint8_t*> <char*> properties
    message.properties_length = <uint32_t> len(properties)
    put_offset(out, &message, offset)
    return message.properties[:message.properties_length]


cdef int note_values(Summary summary, const uint8_t* properties, uint32_t length) except -1:
    """Passes the filter values of a message to a segment's summary: the header as it is, and each
    part if it is a list with commas."""
    cdef Header found
    cdef const uint8_t* part
    cdef const uint8_t* comma
    cdef const uint8_t* end
    if (length < 2 or not load16(properties) & HEADERS
            or not header(properties, length, b"x-stream-filter-value", 21, &found)
            or found.kind != b"S"):
        summary.unfiltered += 1
        return 0
    summary.add_value(found.value, found.length)
    part = found.value
    end = part + found.length
    comma = <const uint8_t*> memchr(part, b",", end - part)
    if comma == NULL:
        return 0
    while comma != NULL:
        summary.add_value(part, comma - part)
        part = comma + 1
        comma = <const uint8_t*> memchr(part, b",", end - part)
    summary.add_value(part, end - part)
    return 0
