from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    FILTER_BYTES = 1024          # a Bloom filter of the filter values of one segment
    ANCHOR_EVERY = 128 << 10     # bytes between two anchors, so a seek steps over no more than this


# A record that a seek can begin at.
cdef struct Anchor:
    uint64_t offset
    int64_t timestamp
    uint32_t position


cdef class Summary:
    cdef readonly uint32_t number
    cdef readonly uint64_t first_offset
    cdef readonly uint64_t end_offset        # behind the last message
    cdef readonly uint32_t count
    cdef readonly uint64_t body_bytes
    cdef readonly int64_t first_timestamp
    cdef readonly int64_t last_timestamp
    cdef readonly uint32_t length            # position behind the last record
    cdef readonly uint32_t unfiltered        # messages without a filter value
    cdef public bint begins_anew             # a purge began this segment: older ones count no more
    cdef public bint sealed
    cdef public bint dropped
    cdef public bint on_disk                 # its meta file was handed to the writer
    cdef public object tiered                # tier_list.Tiered: the object that holds it, or None
    cdef public bint cold                    # only the object does: there is no file on this disk
    cdef public dict gaps                    # position -> length of what is no record, or None
    cdef uint8_t* values                     # Bloom filter, NULL while no message has a value
    cdef Anchor* anchors
    cdef uint32_t anchor_count
    cdef uint32_t anchor_capacity

    cdef int add(self, uint64_t offset, int64_t timestamp, uint32_t position, uint32_t length,
                 uint64_t body_bytes, uint32_t count=*) except -1
    cdef int add_value(self, const uint8_t* value, size_t length) except -1
    cdef bint may_hold(self, uint64_t hash) noexcept
    cdef Anchor* anchor_at(self, uint64_t offset) noexcept
    cdef Anchor* anchor_before(self, int64_t timestamp) noexcept
    cdef int anchor(self, uint64_t offset, int64_t timestamp, uint32_t position) except -1


cdef uint64_t hash_of(const uint8_t* value, size_t length) noexcept nogil
