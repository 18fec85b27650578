from libc.stdint cimport uint32_t, uint64_t


cdef struct Unacked:
    # Borrowed: the channel keeps its consumers alive while they have entries. NULL = settled.
    void* consumer
    uint32_t segment
    uint32_t position
    uint32_t length
    uint32_t word                  # Place.body_length << 1 | Place.redelivered


cdef class Ledger:
    cdef Unacked* entries
    cdef size_t mask               # capacity - 1, capacity a power of two
    cdef size_t capacity
    cdef uint64_t first            # delivery tag of the oldest entry
    cdef uint64_t next             # delivery tag that the next entry gets
    cdef readonly size_t count     # entries not settled

    cdef Unacked* add(self) except NULL
    cdef Unacked* find(self, uint64_t tag) noexcept
    cdef void settle(self, Unacked* entry) noexcept
    cdef void skip_tag(self) noexcept
