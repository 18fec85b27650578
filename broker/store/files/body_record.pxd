from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.checksum cimport crc32c_of, place_seed


# docs/formats/bodies.md is the essay to these numbers.
cdef enum:
    BODIES_MAGIC = 0x4252564C        # "LVRB", little-endian
    BODIES_VERSION = 1
    FILE_HEADER = 16
    BODY_HEAD = 24
    REFERENCE_BYTES = 20             # what a queue's record holds instead of the body: id, length


cdef packed struct BodyHead:
    uint32_t length                  # of the body
    uint32_t check                   # CRC-32C of id and body, seeded with vhost and length
    uint8_t id[16]


cdef packed struct FileHead:
    uint32_t magic
    uint32_t version
    uint32_t first
    uint32_t last


cdef packed struct TocEntry:
    uint8_t id[16]
    uint32_t offset
    uint32_t length                  # of the whole record


cdef inline uint32_t body_check(const BodyHead* head, uint64_t incarnation) noexcept nogil:
    """The CRC of a whole record; the seed holds the vhost, so that no foreign bytes pass, and the
    length."""
    return crc32c_of(place_seed(incarnation, head.length, 0), head.id,
                     <size_t> head.length + 16)


cdef inline bint body_is_sound(const uint8_t* record, size_t got, size_t length,
                               uint64_t incarnation) noexcept nogil:
    """Whether `got` bytes are a whole record of `length` with the CRC of its head."""
    cdef const BodyHead* head = <const BodyHead*> record
    return (got == length and length >= BODY_HEAD and head.length == length - BODY_HEAD
            and head.check == body_check(head, incarnation))
