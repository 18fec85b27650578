# cython: language_level=3
"""Finds one header among a message's properties as received, without decoding the others.

Layout: AMQP 0-9-1 section 4.2.6.1 (property flags and list) and 4.2.5.5 (field tables, with the
types that RabbitMQ's errata give).
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from broker.kernel.buffer cimport load16, load32


cdef const uint8_t* header_place(const uint8_t* properties, uint32_t length) noexcept nogil:
    """Where the length of the header table stands, or would stand; NULL if the properties end
    before."""
    cdef uint32_t at = 2
    cdef uint16_t flags
    cdef int bit
    if length < 2:
        return NULL
    flags = load16(properties)
    for bit in range(15, 13, -1):
        if flags >> bit & 1:
            if at >= length:
                return NULL
            at += 1 + <uint32_t> properties[at]
    return properties + at if at <= length else NULL


cdef const uint8_t* header_table(const uint8_t* properties, uint32_t length) noexcept nogil:
    """Where the length of the header table stands, or NULL if there are no headers."""
    cdef const uint8_t* table = header_place(properties, length)
    cdef uint32_t rest
    if table == NULL or not load16(properties) >> 13 & 1:
        return NULL
    rest = length - <uint32_t> (table - properties)
    if rest < 4 or load32(table) > rest - 4:
        return NULL
    return table


cdef uint64_t value_bytes(const uint8_t* p, uint64_t have) noexcept nogil:
    """Bytes of a field value with its type octet; 0 if it is malformed or does not fit."""
    cdef uint64_t size
    if have == 0:
        return 0
    if p[0] == b"t" or p[0] == b"b" or p[0] == b"B":
        size = 2
    elif p[0] == b"s" or p[0] == b"u" or p[0] == b"U":
        size = 3
    elif p[0] == b"I" or p[0] == b"i" or p[0] == b"f":
        size = 5
    elif p[0] == b"l" or p[0] == b"L" or p[0] == b"d" or p[0] == b"T":
        size = 9
    elif p[0] == b"D":
        size = 6
    elif p[0] == b"V":
        size = 1
    elif p[0] == b"S" or p[0] == b"x" or p[0] == b"A" or p[0] == b"F":
        if have < 5:
            return 0
        size = <uint64_t> 5 + load32(p + 1)
    else:
        return 0
    return size if size <= have else 0


cdef const uint8_t* find_header(const uint8_t* properties, uint32_t length, const uint8_t* name,
                                uint8_t name_length, uint32_t* size) noexcept nogil:
    """The type octet of a header's value, and in `size` how many bytes type and value take; NULL
    if there is no such header."""
    cdef const uint8_t* p = header_table(properties, length)
    cdef const uint8_t* end
    cdef uint64_t value
    cdef bint found
    if p == NULL:
        return NULL
    end = p + 4 + load32(p)
    p += 4
    while p < end:
        if <uint64_t> (end - p) < <uint64_t> 1 + p[0]:
            return NULL
        found = p[0] == name_length and memcmp(p + 1, name, name_length) == 0
        p += 1 + p[0]
        value = value_bytes(p, end - p)
        if value == 0:
            return NULL
        if found:
            size[0] = <uint32_t> value
            return p
        p += value
    return NULL


def header(bytes properties, str name):
    """The raw value of a header, type octet first, or None. For what is not on a message's way."""
    cdef uint32_t size = 0
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > 255:
        return None
    cdef const uint8_t* found = find_header(
        <const uint8_t*> <char*> properties, <uint32_t> len(properties),
        <const uint8_t*> <char*> encoded, <uint8_t> len(encoded), &size)
    return None if found == NULL else found[:size]
