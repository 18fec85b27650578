"""The checks of what is about to be written, made by who writes it."""

from libc.stdint cimport uint8_t, uint32_t

from broker.kernel.checksum cimport crc32c_of, place_seed
from broker.store.files.body_record cimport BODY_HEAD, BodyHead, body_check
from broker.store.files.operation cimport Op
from broker.store.files.record cimport ACK_BYTES, AckEntry, RecordHead


cdef inline void seal_records(Op* op) noexcept nogil:
    """As `record_check` for each record; what their places have in common is summed once."""
    cdef size_t at = 0
    cdef RecordHead* head
    cdef uint32_t[3] segment
    cdef uint32_t seed, position
    segment[0] = <uint32_t> op.incarnation
    segment[1] = <uint32_t> (op.incarnation >> 32)
    segment[2] = op.segment
    seed = crc32c_of(0, <const uint8_t*> segment, 12)
    if op.body != NULL:
        position = <uint32_t> op.offset
        head = <RecordHead*> op.data
        head.check = crc32c_of(
            crc32c_of(crc32c_of(seed, <const uint8_t*> &position, 4), op.data + 8, op.length - 8),
            op.body, op.body_length)
        return
    while at < op.length:
        head = <RecordHead*> (op.data + at)
        position = <uint32_t> (op.offset + at)
        head.check = crc32c_of(
            crc32c_of(seed, <const uint8_t*> &position, 4), op.data + at + 8, head.length - 4)
        at += head.length + 4


cdef inline void seal_acks(Op* op) noexcept nogil:
    """As `ack_check` for each entry."""
    cdef size_t at = 0
    cdef AckEntry* entry
    cdef uint32_t seed = place_seed(op.incarnation, op.segment, 0)
    while at < op.length:
        entry = <AckEntry*> (op.data + at)
        entry.check = crc32c_of(seed, <const uint8_t*> entry, 8)
        at += ACK_BYTES


cdef inline void seal_bodies(Op* op) noexcept nogil:
    cdef size_t at = 0
    cdef BodyHead* head
    while at < op.length:
        head = <BodyHead*> (op.data + at)
        head.check = body_check(head, op.incarnation)
        at += BODY_HEAD + head.length
