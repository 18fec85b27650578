# docs/formats/stream-index.md is the essay to these numbers. Little-endian.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    UNSEALED_MAGIC = 0x4B56524C      # "LRVK"
    BATCH_MAGIC = 0x42564B4C         # "LKVB"
    COMPACTED_MAGIC = 0x5856524C     # "LRVX"
    FORMAT_VERSION = 1
    SLOT_BYTES = 8                   # of a compacted file
    PAGE = 4096                      # of slots and filter: what one checksum covers
    CHECK_BYTES = 4
    FILTER_BITS = 12                 # an item
    PROBES = 8                       # bits a key sets in its page of the filter
    ITEMS_A_SLOT = 4
    STREAMS_MAX = 4096               # in one file
    MS_MOST = 0xFFFFFFFF


# One key of one message. `ms` is the message's time less the file's base, held to what 32 bits
# have: 0 and `MS_MOST` say that it is so early, or so late, or more so.
cdef packed struct Item:
    uint64_t hash
    uint32_t stream                  # number of its row in the same file
    uint32_t segment
    uint32_t position
    uint32_t size                    # bytes of the record
    uint32_t ms
    uint32_t previous                # the item of its slot before, from 1; 0: none


# An item of a compacted file: as above, without `previous`.
cdef packed struct CompactItem:
    uint64_t hash
    uint32_t stream
    uint32_t segment
    uint32_t position
    uint32_t size
    uint32_t ms


# A stream in a file: how far it is indexed in it, and which segments the items name.
cdef packed struct StreamRow:
    uint64_t incarnation
    uint32_t items
    uint32_t first_segment           # 0 without items
    uint32_t last_segment
    uint32_t begin_segment
    uint32_t begin_position
    uint32_t next_segment
    uint32_t next_position
    uint32_t reserved


cdef packed struct UnsealedHead:
    uint32_t magic
    uint32_t version
    uint64_t file_id
    uint64_t serial                  # items in all files of the series before
    uint8_t secret[16]
    uint32_t number
    uint32_t capacity
    int64_t begin_ms
    uint32_t reserved
    uint32_t check


# What one write adds to an unsealed file; rows and items follow.
cdef packed struct BatchHead:
    uint32_t magic
    uint32_t check                   # of all that follows, seeded with file id and batch number
    uint32_t rows
    uint32_t items
    int64_t first_ms                 # of all items up to here
    int64_t last_ms


# A row in a batch.
cdef packed struct BatchRow:
    uint32_t number
    StreamRow row


cdef packed struct CompactedHead:
    uint32_t magic
    uint32_t version
    uint64_t file_id
    uint64_t serial
    uint8_t secret[16]
    int64_t begin_ms
    int64_t first_ms
    int64_t last_ms
    uint64_t length                  # of the file
    uint32_t number
    uint32_t items
    uint32_t slots
    uint32_t slots_used
    uint32_t streams
    uint32_t filter_pages
    uint32_t slots_at
    uint32_t filter_at
    uint32_t arrays_at
    uint32_t reserved


cdef inline int64_t base_of(int64_t begin_ms) noexcept nogil:
    """The time that `Item.ms` counts from: messages up to 24.8 days older or younger than the
    first have their exact time."""
    return begin_ms - (<int64_t> 1 << 31)


cdef inline uint32_t held(int64_t time, int64_t base) noexcept nogil:
    """A time as `Item.ms`."""
    if time <= base:
        return 0
    if time - base >= MS_MOST:
        return MS_MOST
    return <uint32_t> (time - base)
