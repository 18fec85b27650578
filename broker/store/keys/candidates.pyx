# cython: language_level=3
"""What one file says about one key: items of its hash within a range of time, newest first."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, qsort, realloc

from broker.store.keys.layout cimport MS_MOST
from broker.store.keys.rows import Hit


cdef int newer(const void* left, const void* right) noexcept nogil:
    cdef const Candidate* a = <const Candidate*> left
    cdef const Candidate* b = <const Candidate*> right
    if a.ms != b.ms:
        return -1 if a.ms > b.ms else 1
    return -1 if a.rank < b.rank else 1


cdef class Candidates:
    """`incarnations` are the file's streams by number, `base` the time that its ms count from."""

    def __init__(self, int64_t base, list incarnations):
        self.base = base
        self.incarnations = incarnations
        self.in_order = True

    def __dealloc__(self):
        free(self.rows)

    def __len__(self) -> int:
        return self.count

    cdef bint add(self, uint32_t ms, uint32_t stream, uint32_t segment, uint32_t position,
                  uint32_t size) noexcept nogil:
        """Adds an item that is older in its slot than those before. False: no memory."""
        cdef size_t capacity
        cdef Candidate* grown
        cdef Candidate* row
        if self.count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else 16
            grown = <Candidate*> realloc(self.rows, capacity * sizeof(Candidate))
            if grown == NULL:
                return False
            self.rows = grown
            self.capacity = capacity
        if self.count and self.rows[self.count - 1].ms < ms:
            self.in_order = False
        row = &self.rows[self.count]
        row.ms = ms
        row.rank = <uint32_t> self.count
        row.stream = stream
        row.segment = segment
        row.position = position
        row.size = size
        self.count += 1
        return True

    cdef void sort(self) noexcept nogil:
        """By time; of one time, the item that was added last comes first."""
        if not self.in_order:
            qsort(self.rows, self.count, sizeof(Candidate), newer)
            self.in_order = True

    def take(self, size_t start, size_t most) -> list:
        """The `Hit` rows from one on."""
        cdef size_t i
        cdef Candidate* row
        found = []
        for i in range(min(start, self.count), min(start + most, self.count)):
            row = &self.rows[i]
            found.append(Hit(
                self.base + row.ms, row.ms < <uint32_t> MS_MOST, self.incarnations[row.stream],
                row.segment, row.position, row.size))
        return found
