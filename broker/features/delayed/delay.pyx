# cython: language_level=3
"""How long a message asks to be held back: its header `x-delay`, in ms.

Integers of any width count; a float is cut to whole ms and a text must be a number, as with
RabbitMQ's plugin. Anything else, and what is not above zero, means at once.
"""

import math
import re

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.buffer cimport load32, load64, store32, store64
from broker.kernel.headers cimport find_header, header_table
from broker.kernel.message cimport Message

NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
# Beyond this (146 million years) longer delays make no difference.
DELAY_MAX = 2**62


def delay_in(headers) -> int:
    """The delay in decoded headers; 0 for none."""
    value = headers.get("x-delay")
    if isinstance(value, bool) or value is None:
        return 0
    if isinstance(value, str):
        value = int(value) if NUMBER.fullmatch(value) else 0
    elif isinstance(value, float):
        value = int(value) if math.isfinite(value) else 0
    elif not isinstance(value, int):
        return 0
    return max(0, min(value, DELAY_MAX))


cdef int64_t delay_of(const uint8_t* properties, uint32_t length) except? -1:
    """The same from properties as received."""
    cdef uint32_t size = 0
    cdef const uint8_t* value = find_header(properties, length, b"x-delay", 7, &size)
    cdef int64_t delay
    if value == NULL:
        return 0
    if value[0] == b"I":
        delay = <int> load32(value + 1)
    elif value[0] == b"l":
        delay = <int64_t> load64(value + 1)
    else:
        from broker.fields.codec import Reader
        return delay_in({"x-delay": Reader(value[:size]).value(1)})
    if delay > <int64_t> 1 << 62:
        delay = <int64_t> 1 << 62
    return delay if delay > 0 else 0


cdef bytes negated(Message* message, int64_t delay):
    """The properties with x-delay negated, as RabbitMQ's plugin hands them on: the consumer
    sees how long the message waited, and no exchange delays it again."""
    cdef uint32_t size = 0
    cdef const uint8_t* table = header_table(message.properties, message.properties_length)
    cdef const uint8_t* value = find_header(
        message.properties, message.properties_length, b"x-delay", 7, &size)
    cdef size_t before = value - message.properties
    cdef bint is_long = delay > 0x7FFFFFFF
    cdef uint32_t new_size = 9 if is_long else 5
    cdef bytes changed = PyBytes_FromStringAndSize(
        NULL, <Py_ssize_t> message.properties_length - size + new_size)
    cdef uint8_t* p = <uint8_t*> <char*> changed
    memcpy(p, message.properties, before)
    store32(p + (table - message.properties), load32(table) - size + new_size)
    if is_long:
        p[before] = b"l"
        store64(p + before + 1, <uint64_t> -delay)
    else:
        p[before] = b"I"
        store32(p + before + 1, <uint32_t> <int> -delay)
    memcpy(p + before + new_size, value + size, message.properties_length - before - size)
    return changed
