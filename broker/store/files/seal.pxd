"""The checks of what is about to be written, made by the thread that writes it."""

from libc.stdint cimport uint32_t

from broker.store.files.body_record cimport BODY_HEAD, BodyHead, body_check
from broker.store.files.operation cimport Op
from broker.store.files.record cimport ACK_BYTES, AckEntry, RecordHead, ack_check, record_check


cdef inline void seal_records(Op* op) noexcept nogil:
    cdef size_t at = 0
    cdef RecordHead* head
    while at < op.length:
        head = <RecordHead*> (op.data + at)
        head.check = record_check(
            op.data + at, op.incarnation, op.segment, <uint32_t> (op.offset + at))
        at += head.length + 4


cdef inline void seal_acks(Op* op) noexcept nogil:
    cdef size_t at = 0
    cdef AckEntry* entry
    while at < op.length:
        entry = <AckEntry*> (op.data + at)
        entry.check = ack_check(entry, op.incarnation, op.segment)
        at += ACK_BYTES


cdef inline void seal_bodies(Op* op) noexcept nogil:
    cdef size_t at = 0
    cdef BodyHead* head
    while at < op.length:
        head = <BodyHead*> (op.data + at)
        head.check = body_check(head, op.incarnation)
        at += BODY_HEAD + head.length
