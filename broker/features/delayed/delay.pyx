# cython: language_level=3
"""How long a message asks to be held back: its header `x-delay`, in ms.

Integers of any width count; a float is cut to whole ms and a text must be a number, as with
RabbitMQ's plugin. Anything else, and what is not above zero, means at once.
"""

import math
import re

from libc.stdint cimport int64_t, uint8_t, uint32_t

from broker.kernel.buffer cimport load32, load64
from broker.kernel.headers cimport find_header

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
        from broker.wire.fields import Reader
        return delay_in({"x-delay": Reader(value[:size]).value(1)})
    if delay > <int64_t> 1 << 62:
        delay = <int64_t> 1 << 62
    return delay if delay > 0 else 0
