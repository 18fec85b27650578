# cython: language_level=3
"""Which shared bodies the records of a stretch of a queue's segments refer to.

Purging or deleting a queue settles messages that were never read. A thread reads them here, so that
their shared bodies can lose these references.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.message cimport BODY_IS_REFERENCE, Message
from broker.store.files import disk
from broker.store.files.record cimport RecordHead, record_check, record_fits, record_view

cdef enum:
    AT_A_TIME = 256              # ids that are handed to the event loop at a time


def references_in(directory, uint64_t incarnation, pieces):
    """Lists of ids, over all pieces (segment, from, to, bytes or None for those of the file,
    stretches (position, length) that are settled already). Raises ValueError at a record that does
    not check, OSError where the file cannot be read."""
    cdef const uint8_t* content
    cdef const uint8_t* record
    cdef uint32_t position, length, number
    cdef Message message
    ids = []
    for number, start, end, data, skips in pieces:
        if data is None:
            data = disk.read_part(f"{directory}/msgs.{number:010d}", start, end - start)
            is_file = True
        else:
            is_file = False
        content = <bytes> data
        settled = dict(skips)
        position = start
        while position < end:
            if position in settled:
                position += settled[position]
                continue
            record = content + (position - <uint32_t> start)
            if not record_fits(record, end - position):
                raise ValueError(f"segment {number}: no record at position {position}")
            length = (<const RecordHead*> record).length + 4
            if is_file and (<const RecordHead*> record).check != record_check(
                    record, incarnation, number, position):
                raise ValueError(f"segment {number}: a damaged record at position {position}")
            record_view(record, &message)
            if message.flags & BODY_IS_REFERENCE:
                ids.append(message.reference[:16])
                if len(ids) == AT_A_TIME:
                    yield ids
                    ids = []
            position += length
    if ids:
        yield ids
