from libc.stdint cimport uint8_t, uint32_t, uint64_t


# A stretch of a segment that is stepped over: settled records, or bytes that are no record.
cdef struct Span:
    uint32_t position
    uint32_t length


# What an acks file says.
cdef struct Settled:
    Span* spans                  # sorted, none touching the next
    uint32_t count
    uint32_t entries             # settled records that are named one by one
    uint64_t entry_bytes         # their lengths
    uint32_t runs
    Span* returns                # position and how often it came back, in the order of events
    uint32_t return_count
    uint32_t watermark
    uint32_t unsound             # entries that do not check, with sound ones behind
    size_t end                   # bytes up to the last sound entry


cdef int read_settled(const uint8_t* data, size_t length, uint64_t incarnation, uint32_t segment,
                      Settled* settled) noexcept nogil
cdef void settled_free(Settled* settled) noexcept nogil
