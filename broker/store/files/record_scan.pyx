# cython: language_level=3
"""Reads the records of a segment as columns, where no broker runs: of a backup, for programs that
read messages in bulk. Every record is checked; what its acks settle is stepped over.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.buffer cimport Buffer
from broker.kernel.message cimport BODY_IS_REFERENCE, HAS_ORIGIN, Message
from broker.kernel.message cimport PERSISTENT as MESSAGE_IS_PERSISTENT
from broker.kernel.octets cimport Octets, octets
from broker.store.files.record cimport (
    ACKS_MAGIC, FORMAT_VERSION, HEADER_BYTES, MARK, OFFSET_BYTES, ORIGIN_BYTES,
    RECORD_FIXED, SEGMENT_MAGIC, RecordHead, embedded_bytes, record_check, record_fits, record_view,
)
from broker.store.files.shared_headers cimport Front, Known, join, shared_fields, take_front
from broker.store.files.spans cimport Settled, Span, read_settled, settled_free

cdef enum:
    TEXTS = 4                        # exchange, routing key, properties, body

HEADER = HEADER_BYTES
"""Bytes of a segment before its first record."""
HEAD_MOST = HEADER_BYTES + RECORD_FIXED + ORIGIN_BYTES + 255 + 255 + OFFSET_BYTES
"""The bytes of a stream's segment that can hold the offset of its first record."""
REFERENCE = BODY_IS_REFERENCE
"""In a record's flags: the body is a reference to a shared one."""
PERSISTENT = MESSAGE_IS_PERSISTENT


def first_offset(head):
    """The offset of the first record of a stream's segment, and whether that record is no message;
    None if there is no whole record in these bytes. `HEAD_MOST` bytes are enough."""
    cdef const RecordHead* record
    cdef Octets read = octets(head)
    cdef size_t at = HEADER_BYTES + RECORD_FIXED
    if read.length < at:
        return None
    record = <const RecordHead*> (read.data + HEADER_BYTES)
    # A stream's message has its offset before its properties.
    at += record.exchange_length + record.routing_key_length
    if record.flags & HAS_ORIGIN:
        at += ORIGIN_BYTES
    if read.length < at + OFFSET_BYTES:
        return None
    return _big_endian(read.data + at), bool(record.flags & MARK)


def settled(acks, uint64_t incarnation, uint32_t segment):
    """The stretches of a segment that its acks file settles: u32 pairs of position and length,
    sorted, none touching the next. Raises ValueError for a file of another version."""
    cdef Settled found
    cdef Octets read = octets(acks)
    if read.length < HEADER_BYTES:
        return b""
    if ((<const uint32_t*> read.data)[0] != ACKS_MAGIC
            or (<const uint32_t*> read.data)[1] != FORMAT_VERSION):
        raise ValueError("no acks file of a version that this program knows")
    if read_settled(read.data, read.length, incarnation, segment, &found):
        raise MemoryError
    try:
        return (<const uint8_t*> found.spans)[:found.count * sizeof(Span)]
    finally:
        settled_free(&found)


cdef class Scan:
    """The records of one segment from its beginning. `gone`: pairs as `settled` gives them.
    After each call of `next`, `position` is where it ended; `damaged` says that no record stands
    there, although bytes do."""

    cdef Octets data
    cdef Octets gone
    cdef uint64_t incarnation
    cdef uint32_t segment
    cdef bint is_stream
    cdef size_t passed               # entries of `gone`
    cdef Known known                 # headers that records share
    cdef Buffer joined               # properties of a record that does
    cdef readonly size_t position
    cdef readonly bint damaged
    cdef readonly uint64_t marks     # records that are no message

    def __init__(self, data, gone, uint64_t incarnation, uint32_t segment, bint is_stream):
        """Raises ValueError for a file of another version."""
        self.data = octets(data)
        self.gone = octets(gone)
        self.incarnation = incarnation
        self.segment = segment
        self.is_stream = is_stream
        self.joined = Buffer()
        self.position = HEADER_BYTES
        if self.data.length >= HEADER_BYTES and (
                (<const uint32_t*> self.data.data)[0] != SEGMENT_MAGIC
                or (<const uint32_t*> self.data.data)[1] != FORMAT_VERSION):
            raise ValueError("no segment of a version that this program knows")

    def next(self, size_t count_max, size_t bytes_max):
        """Up to `count_max` records of together about `bytes_max` bytes: (count, positions u32,
        times i64, flags u8, offsets i64, and for exchange, routing key, properties and body each
        ends i32, of which the first is 0, and bytes). A body that is a reference is these 20
        bytes. None at the end."""
        cdef const uint8_t* base = NULL
        cdef size_t count = 0
        cdef size_t total = 0
        cdef int k
        cdef size_t sums[TEXTS]
        cdef int64_t offset = 0
        cdef Message message
        if self.data.length > HEADER_BYTES:
            base = self.data.data
        found = bytearray(4 * count_max)
        cdef uint32_t* positions = <uint32_t*> <char*> found
        for k in range(TEXTS):
            sums[k] = 0
        while base != NULL and count < count_max and (total < bytes_max or not count):
            if not self._seek(base):
                break
            record_view(base + self.position, &message)
            if message.flags & MARK:
                self.marks += 1
            elif self.is_stream and not self._take(base, self.position, &message, &offset):
                self.damaged = True
                break
            else:
                positions[count] = <uint32_t> self.position
                sums[0] += message.exchange_length
                sums[1] += message.routing_key_length
                sums[2] += message.properties_length
                sums[3] += embedded_bytes(&message)
                count += 1
                total += (<const RecordHead*> (base + self.position)).length
            self.position += 4 + <size_t> (<const RecordHead*> (base + self.position)).length
        if not count:
            return None
        return self._columns(base, found, count, sums)

    cdef bint _seek(self, const uint8_t* base) noexcept:
        """Moves to the next record that is not settled; whether there is one that is sound."""
        cdef size_t length = self.data.length
        cdef size_t entries = self.gone.length // sizeof(Span)
        cdef const Span* gone = NULL
        cdef const uint8_t* place
        cdef size_t end
        if entries:
            gone = <const Span*> self.gone.data
        while True:
            while self.passed < entries and (
                    <size_t> gone[self.passed].position + gone[self.passed].length
                    <= self.position):
                self.passed += 1
            if self.passed == entries or gone[self.passed].position > self.position:
                break
            self.position = <size_t> gone[self.passed].position + gone[self.passed].length
        if self.position >= length:
            return False
        place = base + self.position
        if not record_fits(place, length - self.position) or (
                record_check(place, self.incarnation, self.segment, <uint32_t> self.position)
                != (<const RecordHead*> place).check):
            # Zeros up to the end are space ahead of the records.
            end = self.position
            while end < length and base[end] == 0:
                end += 1
            self.damaged = end < length
            return False
        return True

    cdef bint _take(self, const uint8_t* base, size_t position, Message* message,
                    int64_t* offset) except -1:
        """Takes the offset off the message of a stream at a position, and gives it the headers that
        it shares. False: it has no offset."""
        cdef Front front
        cdef const uint8_t* fields
        if not take_front(message, &front):
            return False
        offset[0] = <int64_t> front.offset
        if front.back and front.back + <size_t> HEADER_BYTES <= position:
            fields = shared_fields(&self.known, base + (position - front.back), &front,
                                   self.incarnation, self.segment,
                                   <uint32_t> (position - front.back))
            if fields != NULL:
                join(self.joined, message, fields, front.shared)
        return True

    cdef tuple _columns(self, const uint8_t* base, bytearray found, size_t count, size_t* sums):
        cdef const uint32_t* positions = <const uint32_t*> <char*> found
        cdef size_t i
        cdef int k
        cdef Message message
        cdef size_t at[TEXTS]
        cdef uint8_t* places[TEXTS]
        cdef int32_t* ends[TEXTS]
        times, flags = bytearray(8 * count), bytearray(count)
        offsets = bytearray(8 * count if self.is_stream else 0)
        texts = [(bytearray(4 * (count + 1)), bytearray(sums[k])) for k in range(TEXTS)]
        cdef int64_t* time = <int64_t*> <char*> times
        cdef uint8_t* flag = <uint8_t*> <char*> flags
        cdef int64_t* offset = <int64_t*> <char*> offsets
        for k in range(TEXTS):
            at[k] = 0
            ends[k] = <int32_t*> <char*> <bytearray> texts[k][0]
            places[k] = <uint8_t*> <char*> <bytearray> texts[k][1]
        for i in range(count):
            record_view(base + positions[i], &message)
            time[i] = message.timestamp
            flag[i] = message.flags
            if self.is_stream:
                self._take(base, positions[i], &message, &offset[i])
            memcpy(places[0] + at[0], message.exchange, message.exchange_length)
            at[0] += message.exchange_length
            memcpy(places[1] + at[1], message.routing_key, message.routing_key_length)
            at[1] += message.routing_key_length
            memcpy(places[2] + at[2], message.properties, message.properties_length)
            at[2] += message.properties_length
            memcpy(places[3] + at[3],
                   message.reference if message.flags & BODY_IS_REFERENCE else message.body,
                   embedded_bytes(&message))
            at[3] += embedded_bytes(&message)
            for k in range(TEXTS):
                ends[k][i + 1] = <int32_t> at[k]
        return (count, found[:4 * count], times, flags, offsets, texts)


cdef int64_t _big_endian(const uint8_t* place) noexcept:
    cdef uint64_t value = 0
    cdef int i
    for i in range(OFFSET_BYTES):
        value = value << 8 | place[i]
    return <int64_t> value
