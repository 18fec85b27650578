# cython: language_level=3
"""Which messages of a stream a consumer wants: by their header x-stream-filter-value, for which
segments keep a Bloom filter, and by other headers, for which every record is read."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from broker.kernel.buffer cimport load16, load32, load64
from broker.kernel.message cimport Message
from broker.queues.stream_headers cimport Header, header
from broker.store.stream_summary cimport Summary, hash_of


cdef class StreamFilter:
    """`values`: filter values; `headers`: (name, value as text) pairs. `match_unfiltered` lets
    messages without a filter value through."""

    def __init__(self, list values, list headers, bint match_unfiltered, int match):
        self.values = values
        self.headers = headers
        self.match_unfiltered = match_unfiltered
        self.match = match
        self.hashes = [hash_of(<const uint8_t*> <char*> <bytes> value, len(value))
                       for value in values]

    cdef bint takes(self, Message* message) except -1:
        """Whether the consumer wants this message."""
        cdef Header found
        cdef bint has_value = header(
            message.properties, message.properties_length, b"x-stream-filter-value", 21, &found
        ) and found.kind == b"S"
        cdef bint wants_all = self.match != ANY
        cdef uint32_t hits = 0
        if not has_value and self.match_unfiltered:
            return True
        if self.values:
            if has_value:
                for value in self.values:
                    if is_among(<bytes> value, found.value, found.length):
                        hits += 1
                        if self.match != ALL:
                            break
            if self.match == ALL:
                if hits < <uint32_t> len(self.values):
                    return False
            elif hits:
                if not wants_all:
                    return True
            elif wants_all:
                return False
        for name, value in self.headers:
            if is_header(message, <bytes> name, <bytes> value) != wants_all:
                return not wants_all
        return wants_all

    cdef bint may_take(self, Summary segment) except -1:
        """False: no message of the segment is wanted, so it need not be read."""
        cdef uint32_t hits = 0
        if not self.values or self.match == ANY and self.headers:
            return True
        if self.match_unfiltered and segment.unfiltered:
            return True
        for hash in self.hashes:
            hits += segment.may_hold(<uint64_t> hash)
        return hits == <uint32_t> len(self.hashes) if self.match == ALL else hits > 0

    def takes_properties(self, bytes properties) -> bool:
        """Whether a message with these properties is wanted."""
        cdef Message message
        message.properties = <const uint8_t*> <char*> properties
        message.properties_length = <uint32_t> len(properties)
        return self.takes(&message)


cdef bint is_among(bytes wanted, const uint8_t* value, uint32_t length) noexcept:
    """Whether a message's filter value, or a part of it between commas, is the wanted one."""
    cdef size_t size = len(wanted)
    cdef const uint8_t* end = value + length
    cdef const uint8_t* comma
    if length == size and memcmp(value, <char*> wanted, size) == 0:
        return True
    while True:
        comma = <const uint8_t*> memchr(value, b",", end - value)
        if comma == NULL:
            return <size_t> (end - value) == size and memcmp(value, <char*> wanted, size) == 0
        if <size_t> (comma - value) == size and memcmp(value, <char*> wanted, size) == 0:
            return True
        value = comma + 1


cdef bint is_header(Message* message, bytes name, bytes value) except -1:
    """Whether the message has this header with this value, compared as text."""
    cdef Header found
    if not header(message.properties, message.properties_length, <char*> name, len(name), &found):
        return False
    if found.kind in (b"S", b"x"):
        return <size_t> found.length == <size_t> len(value) and memcmp(
            found.value, <char*> value, found.length) == 0
    return text_of(&found) == value


cdef bytes text_of(Header* found):
    """A boolean or an integer as text; None for other types."""
    cdef const uint8_t* p = found.value
    cdef int64_t number
    if found.kind == b"t":
        return b"true" if p[0] else b"false"
    if found.kind == b"b":
        number = <signed char> p[0]
    elif found.kind == b"B":
        number = p[0]
    elif found.kind in (b"s", b"U"):
        number = <short> load16(p)
    elif found.kind == b"u":
        number = load16(p)
    elif found.kind == b"I":
        number = <int> load32(p)
    elif found.kind == b"i":
        number = load32(p)
    elif found.kind in (b"l", b"L", b"T"):
        number = <int64_t> load64(p)
    else:
        return None
    return str(number).encode()
