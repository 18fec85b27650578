from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.checksum cimport crc32c_of, place_seed
from broker.kernel.message cimport BODY_IS_REFERENCE, HAS_ORIGIN, Message, Origin
from broker.kernel.short_copy cimport short_copy
from broker.store.files.body_record cimport REFERENCE_BYTES

# docs/formats/queue-segment.md is the essay to these numbers.
cdef enum:
    SEGMENT_MAGIC = 0x5352564C       # "LVRS", little-endian
    ACKS_MAGIC = 0x4152564C          # "LVRA"
    SUMMARY_MAGIC = 0x4D52564C       # "LVRM"
    FORMAT_VERSION = 1
    HEADER_BYTES = 8
    RECORD_FIXED = 24
    ORIGIN_BYTES = 16
    # A stream's record that is no message: its offset is where the stream continues after a purge,
    # and all earlier segments are removed.
    MARK = 64
    # A stream's record that leaves out what its headers begin with (shared_headers).
    SHARES = 128
    OFFSET_BYTES = 8                 # before the properties of every record of a stream
    SHARING_BYTES = 4                # behind the offset, where the record shares
    SHARED_WITHIN = 0xFFFF           # bytes back at most
    ACK_BYTES = 12
    ACK_VALUE_MASK = 0x3FFFFFFF
    ACK_SETTLED = 0
    ACK_WATERMARK = 1
    ACK_DELIVERY_COUNT = 2
    ACK_RUN = 3


cdef packed struct RecordHead:
    uint32_t length                  # bytes after this field
    uint32_t check                   # CRC-32C of what follows, seeded with the record's place
    int64_t timestamp
    uint8_t flags
    uint8_t exchange_length
    uint8_t routing_key_length
    uint8_t reserved
    uint32_t body_length             # of what stands in the record: the body, or a reference to it


cdef packed struct AckEntry:
    uint32_t position
    uint32_t word                    # kind in the two top bits, value below
    uint32_t check


# meta.N: what a whole sealed segment holds, then the CRC-32C of all before, seeded like an acks
# entry. `references` is how many records refer to a shared body.
cdef packed struct Summary:
    uint32_t magic
    uint32_t version
    uint32_t count                   # records
    uint32_t length                  # of msgs.N
    uint64_t body_bytes
    uint32_t overhead                # of each record, 0 where they differ
    uint32_t flags                   # of all records, or-ed
    uint32_t references


cdef inline uint32_t embedded_bytes(const Message* message) noexcept nogil:
    return REFERENCE_BYTES if message.flags & BODY_IS_REFERENCE else message.body_length


cdef inline uint32_t record_bytes(const Message* message) noexcept nogil:
    return (<uint32_t> RECORD_FIXED + message.exchange_length + message.routing_key_length
            + message.properties_length + embedded_bytes(message)
            + (ORIGIN_BYTES if message.flags & HAS_ORIGIN else 0))


cdef inline void record_put(uint8_t* place, const Message* message) noexcept nogil:
    """Writes one record without its check, which the writing thread adds."""
    record_put_behind(place, message, NULL, 0)


cdef inline void record_put_behind(uint8_t* place, const Message* message, const uint8_t* first,
                                   uint32_t first_length) noexcept nogil:
    """As `record_put`, with bytes in front of the properties."""
    short_copy(record_put_front(place, message, first, first_length),
               message.reference if message.flags & BODY_IS_REFERENCE else message.body,
               embedded_bytes(message))


cdef inline uint8_t* record_put_front(uint8_t* place, const Message* message, const uint8_t* first,
                                      uint32_t first_length) noexcept nogil:
    """The same without the body. Returns where that begins."""
    cdef RecordHead* head = <RecordHead*> place
    cdef uint8_t* p = place + RECORD_FIXED
    head.length = record_bytes(message) + first_length - 4
    head.check = 0
    head.timestamp = message.timestamp
    head.flags = message.flags
    head.exchange_length = message.exchange_length
    head.routing_key_length = message.routing_key_length
    head.reserved = 0
    head.body_length = embedded_bytes(message)
    if message.flags & HAS_ORIGIN:
        (<Origin*> p)[0] = message.origin
        p += ORIGIN_BYTES
    short_copy(p, message.exchange, message.exchange_length)
    p += message.exchange_length
    short_copy(p, message.routing_key, message.routing_key_length)
    p += message.routing_key_length
    if first_length:
        short_copy(p, first, first_length)
        p += first_length
    short_copy(p, message.properties, message.properties_length)
    return p + message.properties_length


cdef inline void record_view(const uint8_t* place, Message* message) noexcept nogil:
    """Points `message` into a record whose lengths are known to fit."""
    cdef const RecordHead* head = <const RecordHead*> place
    cdef const uint8_t* p = place + RECORD_FIXED
    message.timestamp = head.timestamp
    message.flags = head.flags
    if head.flags & HAS_ORIGIN:
        message.origin = (<const Origin*> p)[0]
        p += ORIGIN_BYTES
    message.exchange = p
    message.exchange_length = head.exchange_length
    p += head.exchange_length
    message.routing_key = p
    message.routing_key_length = head.routing_key_length
    p += head.routing_key_length
    message.body_length = head.body_length
    message.properties = p
    message.properties_length = (head.length + 4 - <uint32_t> (p - place) - head.body_length)
    message.body = p + message.properties_length
    message.large = NULL
    if message.flags & BODY_IS_REFERENCE:
        message.reference = message.body
        message.body = NULL
        memcpy(&message.body_length, message.reference + 16, 4)


cdef inline bint record_fits(const uint8_t* place, size_t available) noexcept nogil:
    """Whether a whole record with consistent lengths lies at `place`."""
    cdef const RecordHead* head = <const RecordHead*> place
    if available < RECORD_FIXED or head.length < RECORD_FIXED - 4 + 2:
        return False
    if <size_t> head.length + 4 > available:
        return False
    return (<uint64_t> RECORD_FIXED + head.exchange_length + head.routing_key_length + 2
            + head.body_length + (ORIGIN_BYTES if head.flags & HAS_ORIGIN else 0)
            ) <= <uint64_t> head.length + 4


cdef inline uint32_t body_bytes(const uint8_t* place) noexcept nogil:
    """Bytes of the body of the record at `place`, wherever it lies."""
    cdef Message message
    record_view(place, &message)
    return message.body_length


cdef inline uint32_t record_check(const uint8_t* place, uint64_t incarnation, uint32_t segment,
                                  uint32_t position) noexcept nogil:
    return crc32c_of(place_seed(incarnation, segment, position), place + 8,
                     (<const RecordHead*> place).length - 4)


cdef inline bint record_is_sound(const uint8_t* record, size_t got, uint64_t incarnation,
                                 uint32_t segment, uint32_t position) noexcept nogil:
    """Whether `got` bytes begin with a whole record that belongs at this place."""
    return record_fits(record, got) and (<const RecordHead*> record).check == record_check(
        record, incarnation, segment, position)


cdef inline uint32_t ack_check(const AckEntry* entry, uint64_t incarnation,
                               uint32_t segment) noexcept nogil:
    return crc32c_of(place_seed(incarnation, segment, 0), <const uint8_t*> entry, 8)
