from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel.checksum cimport crc32c_of, place_seed


# docs/formats/delayed.md is the essay to these numbers.
cdef enum:
    RUN_MAGIC = 0x4452564C           # "LVRD", little-endian
    RUN_VERSION = 1
    RUN_HEADER_BYTES = 32
    ENTRY_BYTES = 28


cdef packed struct RunHeader:
    uint32_t magic
    uint32_t version
    uint64_t incarnation
    uint32_t number
    uint32_t count
    uint32_t reserved
    uint32_t check                   # CRC-32C of what stands before it


# One delayed message: when it is due and where its record lies. Sorted by due time, and equal ones
# by their place in the log, which is the order in which they were published.
cdef packed struct Entry:
    int64_t due                      # ms of the broker's clock
    uint32_t segment
    uint32_t position
    uint32_t length                  # of the whole record
    uint32_t body_length
    uint32_t check                   # CRC-32C of what stands before it, seeded with the run


cdef inline bint is_before(const Entry* one, const Entry* other) noexcept nogil:
    if one.due != other.due:
        return one.due < other.due
    if one.segment != other.segment:
        return one.segment < other.segment
    return one.position < other.position


cdef inline uint32_t entry_check(const Entry* entry, uint64_t incarnation,
                                 uint32_t number) noexcept nogil:
    return crc32c_of(place_seed(incarnation, number, 0), <const uint8_t*> entry, ENTRY_BYTES - 4)


cdef inline uint32_t header_check(const RunHeader* header) noexcept nogil:
    return crc32c_of(0, <const uint8_t*> header, RUN_HEADER_BYTES - 4)
