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


# Bytes of a field's value with its type octet; `PREFIXED`: a length of 4 octets follows the type;
# 0: no such type.
cdef enum:
    PREFIXED = 255


cdef uint8_t sizes[256]


cdef void note_sizes() noexcept:
    cdef size_t i
    for i in range(256):
        sizes[i] = 0
    for types, size in ((b"tbB", 2), (b"suU", 3), (b"Iif", 5), (b"lLdT", 9), (b"D", 6), (b"V", 1),
                        (b"SxAF", PREFIXED)):
        for i in types:
            sizes[i] = size


note_sizes()


cdef const uint8_t* find_header(const uint8_t* properties, uint32_t length, const uint8_t* name,
                                uint8_t name_length, uint32_t* size) noexcept nogil:
    """The type octet of a header's value, and in `size` how many bytes type and value take; NULL
    if there is no such header."""
    cdef const uint8_t* p = header_table(properties, length)
    if p == NULL:
        return NULL
    return find_field(p + 4, p + 4 + load32(p), name, name_length, size)


cdef const uint8_t* find_field(const uint8_t* p, const uint8_t* end, const uint8_t* name,
                               uint8_t name_length, uint32_t* size) noexcept nogil:
    """As `find_header`, among the fields of a table that stand from `p` to `end`."""
    cdef const uint8_t* value
    cdef uint64_t whole
    while p < end and end - p > 1 + <Py_ssize_t> p[0]:
        value = p + 1 + p[0]
        whole = sizes[value[0]]
        if whole == PREFIXED and end - value >= 5:
            whole = <uint64_t> 5 + load32(value + 1)
        if whole == 0 or whole > <uint64_t> (end - value):
            return NULL
        if p[0] == name_length and memcmp(p + 1, name, name_length) == 0:
            size[0] = <uint32_t> whole
            return value
        p = value + whole
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
