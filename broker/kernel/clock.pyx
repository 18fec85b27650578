# cython: language_level=3
"""The broker's own clock: the wall's time at start plus the monotonic clock since, in ms.

A change of the system's clock has no effect here. `now_ms` is read with every received chunk and
every timer, not per message.
"""

import time

from libc.stdint cimport int64_t


# In ns: the difference of two rounded times would leave this clock up to 1 ms beside the wall's.
cdef int64_t offset_ns = time.time_ns() - monotonic_ns()
cdef int64_t now_ms = (offset_ns + monotonic_ns()) // 1000000


cdef void refresh() noexcept nogil:
    global now_ms
    now_ms = (offset_ns + monotonic_ns()) // 1000000


cdef int64_t at(int64_t monotonic_ns) noexcept nogil:
    """What this clock showed at a time of the monotonic clock, ms."""
    return (offset_ns + monotonic_ns) // 1000000


def now() -> int:
    """Milliseconds since 1970 by the broker's clock."""
    refresh()
    return now_ms
