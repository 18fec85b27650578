# cython: language_level=3
"""Whether the properties of a published message and the table of its headers can be decoded,
without making objects of them (AMQP 0-9-1 sections 4.2.6.1 and 4.2.5.5, with the type letters and
limits of `broker.fields.codec`).
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memset

from broker.fields.codec import DEPTH_MAX, Malformed
from broker.kernel.buffer cimport load16, load32
from broker.schema.errors import FrameError
from broker.settings.bounds import PUBLISHED_VALUES_MAX

cdef enum:
    # What `widths` says of a type letter beside the bytes of a value.
    LONG = 0xFD                  # a length of four bytes, then as many bytes
    NESTED = 0xFE                # the same, and those are values again
    UNKNOWN = 0xFF

cdef enum Fault:
    FINE = 0
    TOO_SHORT
    TOO_DEEP
    TOO_MANY
    UNKNOWN_TYPE

cdef int depth_max = DEPTH_MAX
cdef uint32_t values_max = PUBLISHED_VALUES_MAX
cdef uint8_t[256] widths

memset(widths, UNKNOWN, sizeof(widths))
for letters, width in ((b"V", 0), (b"tbB", 1), (b"suU", 2), (b"Iif", 4), (b"D", 5), (b"lLdT", 8),
                       (b"Sx", LONG), (b"FA", NESTED)):
    for letter in letters:
        widths[<uint8_t> letter] = <uint8_t> width


cdef Fault walk(const uint8_t* p, const uint8_t* end, bint is_table, int depth,
                uint32_t* values) noexcept nogil:
    """Goes through the fields of a table, or the values of an array, `depth` tables deep. `values`
    counts all that were met. Calls itself at most `depth_max` deep."""
    cdef uint32_t size
    cdef uint8_t width
    cdef Fault fault
    while p < end:
        if is_table:
            if end - p < 2 + <int> p[0]:
                return TOO_SHORT
            p += 1 + <int> p[0]
        if depth > depth_max:
            return TOO_DEEP
        values[0] += 1
        if values[0] > values_max:
            return TOO_MANY
        width = widths[p[0]]
        if width < LONG:
            if end - p < 1 + <int> width:
                return TOO_SHORT
            p += 1 + <int> width
            continue
        if width == UNKNOWN:
            return UNKNOWN_TYPE
        if end - p < 5:
            return TOO_SHORT
        size = load32(p + 1)
        if size > <size_t> (end - p - 5):
            return TOO_SHORT
        if width == NESTED:
            fault = walk(p + 5, p + 5 + size, p[0] == c"F", depth + 1, values)
            if fault:
                return fault
        p += 5 + <size_t> size
    return FINE


cdef int check_table(const uint8_t* p, uint32_t length) except -1:
    """Checks the fields of a table, which follow its own length. Raises Malformed (501)."""
    cdef uint32_t values = 0
    cdef Fault fault = walk(p, p + length, True, 1, &values)
    if fault == FINE:
        return 0
    if fault == TOO_SHORT:
        raise Malformed("cannot decode: the fields of a header table do not fill its length")
    if fault == TOO_DEEP:
        raise Malformed(f"cannot decode: tables are nested deeper than {DEPTH_MAX}")
    if fault == TOO_MANY:
        raise Malformed(f"cannot decode: more than {values_max} values in one table")
    raise Malformed("cannot decode: a header of an unknown field type")


cdef int walk_properties(const uint8_t* p, uint32_t length) except -1:
    """Checks that the property list fills its bytes and its headers can be decoded. Returns the
    delivery mode. Raises FrameError (501)."""
    cdef uint32_t at = 2
    cdef uint32_t size
    cdef int bit
    cdef uint16_t flags
    cdef int delivery_mode = 1
    if length < 2:
        raise FrameError("cannot decode: a content header without property flags")
    flags = load16(p)
    if flags & 3:
        raise FrameError("cannot decode: unknown property flags")
    for bit in range(15, 1, -1):
        if not flags >> bit & 1:
            continue
        if bit == 13:
            if length - at < 4:
                raise FrameError("cannot decode: the properties end too early")
            size = load32(p + at)
            if size > length - at - 4:
                raise FrameError("cannot decode: the properties end too early")
            check_table(p + at + 4, size)
            size += 4
        elif bit == 12 or bit == 11:
            size = 1
        elif bit == 6:
            size = 8
        else:
            size = 1 + <uint32_t> p[at] if at < length else 1
        if size > length - at:
            raise FrameError("cannot decode: the properties end too early")
        if bit == 12:
            delivery_mode = p[at]
        at += size
    if at != length:
        raise FrameError(f"cannot decode: {length - at} bytes follow the properties")
    return delivery_mode
