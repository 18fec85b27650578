cimport cython
from libc.stdint cimport uint32_t, uint64_t


cdef struct Unacked:
    # Borrowed: the channel keeps its consumers alive while they have entries. NULL = settled.
    void* consumer
    uint32_t segment
    uint32_t position
    uint32_t length
    uint32_t word                  # Place.body_length << 1 | Place.redelivered


cdef class Ledger:
    cdef Unacked* entries          # a ring; the index of a position is its low bits
    cdef uint64_t* tags            # of the entries; NULL while tags rise by one
    cdef size_t entries_size       # bytes
    cdef size_t tags_size
    cdef size_t mask               # capacity - 1, capacity a power of two
    cdef readonly size_t capacity
    cdef uint64_t first            # position of the oldest entry
    cdef uint64_t end              # position behind the newest one
    cdef uint64_t next             # delivery tag that the next delivery gets
    cdef bint is_dense             # tags rise by one, up to next - 1
    cdef readonly size_t count     # entries not settled
    cdef uint64_t moves            # how often entries got other positions

    cdef Unacked* add(self) except NULL
    cdef int make_room(self, size_t more) except -1
    cdef int double(self) except -1
    cdef void copy(self, size_t to, size_t at, size_t count) noexcept
    cdef int pack(self) except -1
    cdef int move(self, size_t capacity, bint packed) except -1
    cdef int skip_tags(self, uint64_t count) except -1
    cdef uint64_t tag_at(self, uint64_t at) noexcept
    cdef uint64_t position_of(self, uint64_t tag) noexcept
    cdef Unacked* find(self, uint64_t tag) noexcept
    cdef Unacked* open_at(self, uint64_t at) noexcept
    cdef void settle(self, Unacked* entry) noexcept
    cdef void settle_run(self, uint64_t at, size_t count) noexcept
    cdef void give_back(self) noexcept

    @cython.final
    cdef inline int reserve(self, size_t more) except -1:
        """Makes room for `more` entries. Raises MemoryError and changes nothing."""
        if self.end - self.first + more > self.capacity:
            return self.make_room(more)
        return 0

    @cython.final
    cdef inline Unacked* put(self) noexcept:
        """The entry of tag `next`, which rises, where there is room; the caller fills it."""
        cdef Unacked* entry = &self.entries[self.end & self.mask]
        if not self.is_dense:
            self.tags[self.end & self.mask] = self.next
        self.end += 1
        self.next += 1
        self.count += 1
        return entry
