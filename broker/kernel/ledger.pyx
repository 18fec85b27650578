# cython: language_level=3
"""A channel's unacked deliveries: a ring of 24-byte entries in tag order.

Tags rise by one, so a tag is an index. Settled entries stay until the oldest one is settled; then
the front moves on.
"""

from libc.stdlib cimport free, malloc
from libc.stdint cimport uint64_t


cdef class Ledger:
    """Entries of delivery tags [first, next). Owns no memory until the first delivery that wants an
    ack."""

    def __cinit__(self):
        self.entries = NULL
        self.capacity = 0
        self.mask = 0
        self.first = 1
        self.next = 1
        self.count = 0

    def __dealloc__(self):
        free(self.entries)

    cdef Unacked* add(self) except NULL:
        """The entry of tag `next`, which rises; the caller fills it."""
        cdef Unacked* grown
        cdef Unacked* entry
        cdef size_t capacity
        cdef uint64_t tag
        if self.next - self.first >= self.capacity:
            capacity = self.capacity * 2 if self.capacity else 16
            grown = <Unacked*> malloc(capacity * sizeof(Unacked))
            if grown == NULL:
                raise MemoryError("no memory for a channel's unacked deliveries")
            for tag in range(self.first, self.next):
                grown[tag & (capacity - 1)] = self.entries[tag & self.mask]
            free(self.entries)
            self.entries = grown
            self.capacity = capacity
            self.mask = capacity - 1
        entry = &self.entries[self.next & self.mask]
        self.next += 1
        self.count += 1
        return entry

    cdef void skip_tag(self) noexcept:
        """A delivery that wants no ack uses up a tag all the same."""
        if self.first == self.next:
            self.first += 1
            self.next += 1
            return
        # Older entries are open: the tag gets an entry that is settled from the start.
        cdef Unacked* entry
        try:
            entry = self.add()
        except MemoryError:
            return
        entry.consumer = NULL
        self.count -= 1

    cdef Unacked* find(self, uint64_t tag) noexcept:
        """The open entry of `tag`, or NULL."""
        cdef Unacked* entry
        if tag < self.first or tag >= self.next:
            return NULL
        entry = &self.entries[tag & self.mask]
        return entry if entry.consumer != NULL else NULL

    cdef void settle(self, Unacked* entry) noexcept:
        """Closes an open entry."""
        entry.consumer = NULL
        self.count -= 1
        if self.count == 0:
            self.first = self.next
            if self.capacity > 4096:
                free(self.entries)
                self.entries = NULL
                self.capacity = 0
                self.mask = 0
            return
        while self.first < self.next and self.entries[self.first & self.mask].consumer == NULL:
            self.first += 1
