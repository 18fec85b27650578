# cython: language_level=3
"""Headers that records of a stream share: a record may leave out what its headers begin with, and
name a whole record shortly before it in the same segment, whose headers begin with the same
(docs/formats/stream.md).

For what the broker puts in front of the headers of messages: a history would write who published,
and where it went, with each message again. Only headers that the message's own can not have may be
shared, so that the first of a name is the same, whichever half is searched first.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.buffer cimport Buffer, load32, store32
from broker.kernel.headers cimport header_table
from broker.kernel.message cimport Message
from broker.store.files.record cimport RecordHead, record_check, record_fits, record_view


cdef const uint8_t* shared_fields(Known* known, const uint8_t* record, const Front* front,
                                  uint64_t incarnation, uint32_t segment,
                                  uint32_t position) noexcept nogil:
    """The fields that another record refers to, in the one that stands at `position`. NULL: there
    is no sound record that has them."""
    cdef Message whole
    cdef Front its
    cdef const uint8_t* table
    if (known.fields != NULL and known.position == position
            and known.length >= front.shared):
        return known.fields
    # It ends before the one that refers to it begins.
    if not record_fits(record, front.back) or (
            record_check(record, incarnation, segment, position)
            != (<const RecordHead*> record).check):
        return NULL
    record_view(record, &whole)
    if not take_front(&whole, &its) or its.back:
        return NULL
    table = header_table(whole.properties, whole.properties_length)
    if table == NULL or load32(table) < front.shared:
        return NULL
    known.fields, known.position, known.length = table + 4, position, front.shared
    return known.fields


cdef int join(Buffer out, Message* message, const uint8_t* fields, uint32_t length) except -1:
    """Puts `length` bytes of fields in front of a message's headers; its properties lie in `out`
    then. A message without headers stays as it is."""
    cdef const uint8_t* properties = message.properties
    cdef const uint8_t* table = header_table(properties, message.properties_length)
    cdef size_t before, behind
    cdef uint8_t* p
    if table == NULL:
        return 0
    before = table - properties
    behind = message.properties_length - before - 4
    out.length = 0
    p = out.room(before + 4 + length + behind)
    memcpy(p, properties, before)
    store32(p + before, load32(table) + length)
    memcpy(p + before + 4, fields, length)
    memcpy(p + before + 4 + length, table + 4, behind)
    out.length = before + 4 + length + behind
    message.properties = p
    message.properties_length = <uint32_t> out.length
    return 0
