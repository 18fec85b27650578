# cython: language_level=3
"""Finds messages that came to the disk without the entries of their ids.

An id is written behind its message (`id_log`), so a crash may leave messages at a queue's end that
the log knows nothing of. They were not confirmed: their publisher sends them again.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel.message cimport Message
from broker.store.files import disk
from broker.store.files.record cimport (
    HEADER_BYTES, RecordHead, record_check, record_fits, record_view,
)
from broker.store.log.priority_store cimport LEVEL_SHIFT

# What is older than this when the broker ends was synced, and its entries with it.
cdef int64_t UNSYNCED_MS = 60000


def unlogged(str directory, uint64_t incarnation, int64_t since) -> list:
    """[(published, properties)] of a queue's messages on disk that were published at `since` or
    later (ms of the broker's clock), settled or not, in the order of publishing; none that is
    certain to have been synced."""
    cdef int64_t oldest
    found = []
    levels = {}
    for name in disk.listdir(directory):
        if name.startswith("msgs.") and name[5:].isdigit():
            number = int(name[5:])
            levels.setdefault(number >> LEVEL_SHIFT, []).append(number)
    for numbers in levels.values():
        oldest = since
        for number in sorted(numbers, reverse=True):
            try:
                rows = _read(f"{directory}/msgs.{number:010d}", incarnation, number, oldest)
            except OSError:
                # The queue's own recovery tells of it.
                continue
            if rows:
                oldest = max(oldest, max(row[0] for row in rows) - UNSYNCED_MS)
            found += [row for row in rows if row[0] >= oldest]
            if not rows or rows[0][0] < oldest:
                # Whatever lies before it was published earlier.
                break
    found.sort(key=lambda row: row[0])
    return found


def _read(str path, uint64_t incarnation, uint32_t number, int64_t since) -> list:
    cdef bytes data = disk.read(path)
    cdef const uint8_t* start = data
    cdef const RecordHead* head
    cdef size_t at = HEADER_BYTES
    cdef size_t length = len(data)
    cdef Message message
    rows = []
    while at < length:
        head = <const RecordHead*> (start + at)
        if not record_fits(start + at, length - at) or head.check != record_check(
                start + at, incarnation, number, <uint32_t> at):
            at += 1
            continue
        if head.timestamp >= since:
            record_view(start + at, &message)
            rows.append((
                message.timestamp, message.properties[:message.properties_length]))
        at += head.length + 4
    return rows
