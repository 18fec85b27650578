# cython: language_level=3
"""Which messages a transfer takes: by routing key, by one header, by when they were published."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from broker.kernel.headers cimport find_header
from broker.kernel.message cimport Message, set_parts

from broker.fields.codec import Malformed, Reader, text


cdef class Rules:
    """`key_matches(text)` decides on a routing key, None takes all. `header` and `value`: a header
    of this name whose value reads like this text. `since` and `until` are ms of the broker's clock,
    the second not included; -1 is no limit."""

    def __init__(self, key_matches=None, header=None, value=None, int64_t since=-1,
                 int64_t until=-1):
        self.key_matches = key_matches
        self.header = header.encode("utf-8", "surrogateescape") if header is not None else None
        self.value = value
        self.value_octets = (value or "").encode("utf-8", "surrogateescape")
        self.since = since
        self.until = until

    def takes(self, bytes routing_key, bytes properties, int64_t timestamp) -> bool:
        """Whether a message of a stream is taken."""
        cdef Message message
        set_parts(&message, b"", routing_key, properties, b"")
        message.timestamp = timestamp
        return self.match(&message)

    cdef bint match(self, Message* message) except -1:
        cdef uint32_t size = 0
        cdef const uint8_t* found
        if self.since >= 0 and message.timestamp < self.since:
            return False
        if self.until >= 0 and message.timestamp >= self.until:
            return False
        if self.header is not None:
            found = find_header(
                message.properties, message.properties_length,
                <const uint8_t*> <char*> self.header, <uint8_t> len(self.header), &size)
            if found == NULL:
                return False
            if found[0] == b"S":
                if (size - 5 != <uint32_t> len(self.value_octets)
                        or memcmp(found + 5, <char*> self.value_octets, size - 5) != 0):
                    return False
            elif not reads_like(found[:size], self.value):
                return False
        if self.key_matches is not None:
            return self.key_matches(
                text(message.routing_key[:message.routing_key_length]))
        return True


def reads_like(bytes field, str value) -> bool:
    """Whether a header's value, type octet first, is what a person writes as this text: numbers in
    digits, `true` and `false`. Tables and arrays are like no text."""
    try:
        found = Reader(field).value(1)
    except (Malformed, ValueError):
        return False
    if isinstance(found, bool):
        return value.lower() == ("true" if found else "false")
    if isinstance(found, (int, float)):
        return str(found) == value
    if found is None:
        return value == ""
    return isinstance(found, str) and found == value
