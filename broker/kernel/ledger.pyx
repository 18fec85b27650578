# cython: language_level=3
"""A channel's unacked deliveries: a ring of 24-byte entries in tag order.

Mostly the tags of the entries rise by one, so that a tag is an index. A settled entry stays until
it is the oldest one, or until the ring is full: then settled ones leave if they are half of it, so
that what is old costs no room for what came after it. From then on, or from a delivery in between
that wants no ack, each entry has its tag beside it, until tags rise by one again.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from broker.kernel.mapped cimport free_memory, grown_memory

cdef enum:
    CAPACITY_LEAST = 16
    CAPACITY_KEPT = 4096         # a larger ring is given back when nothing is open


cdef void* grown_or_raise(void* memory, size_t* size, size_t wanted) except NULL:
    """`memory` of `size` bytes with the `wanted` ones. Raises MemoryError and changes nothing."""
    cdef void* grown = grown_memory(memory, size[0], wanted)
    if grown == NULL:
        raise MemoryError("no memory for a channel's unacked deliveries")
    size[0] = wanted
    return grown


cdef class Ledger:
    """The entries at positions [first, end). Owns no memory until the first delivery that wants an
    ack."""

    def __cinit__(self):
        self.entries = NULL
        self.tags = NULL
        self.entries_size = self.tags_size = 0
        self.capacity = 0
        self.mask = 0
        self.first = 0
        self.end = 0
        self.next = 1
        self.is_dense = True
        self.count = 0

    def __dealloc__(self):
        self.give_back()

    # -- deliveries --------------------------------------------------------------------------------

    cdef Unacked* add(self) except NULL:
        """The entry of tag `next`, which rises; the caller fills it. Raises MemoryError and changes
        nothing."""
        self.reserve(1)
        return self.put()

    cdef int skip_tags(self, uint64_t count) except -1:
        """Deliveries that want no ack use up tags all the same. Raises MemoryError and changes
        nothing."""
        if self.is_dense and self.first != self.end:
            # Older entries are open: from now on each has its tag beside it.
            self.pack()
        self.next += count
        return 0

    # -- room --------------------------------------------------------------------------------------

    cdef int make_room(self, size_t more) except -1:
        """The ring is full: takes settled entries out if they are half of it, or doubles it."""
        cdef size_t capacity = CAPACITY_LEAST
        if self.count * 2 > self.capacity:
            while self.capacity < self.end - self.first + more:
                self.double()
            return 0
        while capacity < self.count * 2 or capacity < self.count + more:
            capacity *= 2
        if CAPACITY_KEPT < capacity <= self.capacity < capacity * 4:
            return self.pack()
        # An empty ring is as dense as ever.
        return self.move(capacity, self.count == 0)

    cdef int double(self) except -1:
        """Doubles the ring where it is. Raises MemoryError and changes nothing."""
        cdef size_t old = self.capacity
        cdef size_t start = self.first & self.mask
        cdef size_t in_front = min(<size_t> (self.end - self.first), old - start)
        cdef size_t wrapped = self.end - self.first - in_front
        cdef bint moves_wrapped = wrapped <= in_front
        # The tags may have grown in vain before, and the entries.
        if self.tags != NULL and self.tags_size < 2 * old * sizeof(uint64_t):
            self.tags = <uint64_t*> grown_or_raise(
                self.tags, &self.tags_size, 2 * old * sizeof(uint64_t))
        if self.entries_size < 2 * old * sizeof(Unacked):
            self.entries = <Unacked*> grown_or_raise(
                self.entries, &self.entries_size, 2 * old * sizeof(Unacked))
        # The shorter part moves to the new half. Positions say which one lies there.
        if ((self.first & old) == 0) != moves_wrapped:
            self.first += old
            self.end += old
        if moves_wrapped:
            self.copy(old, 0, wrapped)
        else:
            self.copy(old + start, start, in_front)
        self.capacity = 2 * old
        self.mask = self.capacity - 1
        self.moves += 1
        return 0

    cdef void copy(self, size_t to, size_t at, size_t count) noexcept:
        """Copies entries, by their places in the ring."""
        memcpy(self.entries + to, self.entries + at, count * sizeof(Unacked))
        if self.tags != NULL:
            memcpy(self.tags + to, self.tags + at, count * sizeof(uint64_t))

    cdef int pack(self) except -1:
        """Takes settled entries out of the ring, which keeps its memory. Raises MemoryError and
        changes nothing."""
        cdef uint64_t to = self.first
        cdef uint64_t at
        if self.tags == NULL:
            self.tags = <uint64_t*> grown_or_raise(
                NULL, &self.tags_size, self.capacity * sizeof(uint64_t))
        for at in range(self.first, self.end):
            if self.entries[at & self.mask].consumer != NULL:
                self.tags[to & self.mask] = self.tag_at(at)
                self.entries[to & self.mask] = self.entries[at & self.mask]
                to += 1
        self.end = to
        self.is_dense = False
        self.moves += 1
        return 0

    cdef int move(self, size_t capacity, bint is_dense) except -1:
        """Moves the entries to another ring: all of them, as their tags rise by one, or those that
        are open, each with its tag. Raises MemoryError and changes nothing."""
        cdef size_t entries_size = capacity * sizeof(Unacked)
        cdef size_t tags_size = 0 if is_dense else capacity * sizeof(uint64_t)
        cdef Unacked* entries = <Unacked*> grown_memory(NULL, 0, entries_size)
        cdef uint64_t* tags = NULL
        cdef Unacked* entry
        cdef uint64_t to = self.first
        cdef uint64_t at
        if not is_dense:
            tags = <uint64_t*> grown_memory(NULL, 0, tags_size)
        if entries == NULL or (tags == NULL and not is_dense):
            free_memory(entries, entries_size)
            free_memory(tags, tags_size)
            raise MemoryError("no memory for a channel's unacked deliveries")
        for at in range(self.first, self.end):
            entry = &self.entries[at & self.mask]
            if is_dense:
                entries[at & (capacity - 1)] = entry[0]
                to += 1
            elif entry.consumer != NULL:
                entries[to & (capacity - 1)] = entry[0]
                tags[to & (capacity - 1)] = self.tag_at(at)
                to += 1
        self.give_back()
        self.moves += 1
        self.entries = entries
        self.tags = tags
        self.entries_size, self.tags_size = entries_size, tags_size
        self.capacity = capacity
        self.mask = capacity - 1
        self.end = to
        self.is_dense = is_dense
        return 0

    cdef void give_back(self) noexcept:
        free_memory(self.entries, self.entries_size)
        free_memory(self.tags, self.tags_size)
        self.entries = NULL
        self.tags = NULL
        self.entries_size = self.tags_size = 0
        self.capacity = 0
        self.mask = 0

    # -- settling ----------------------------------------------------------------------------------

    cdef uint64_t tag_at(self, uint64_t at) noexcept:
        """The delivery tag of the entry at a position."""
        if self.is_dense:
            return self.next - (self.end - at)
        return self.tags[at & self.mask]

    cdef uint64_t position_of(self, uint64_t tag) noexcept:
        """Where the first entry is whose tag is not below this one; `end` if there is none."""
        cdef uint64_t low = self.first
        cdef uint64_t high = self.end
        cdef uint64_t middle
        if tag >= self.next or low == high:
            return high
        # No two entries have the same tag: at most `next - tag` entries follow this one.
        if self.next - tag < high - low:
            low = high - (self.next - tag)
        if self.is_dense:
            return low
        if tag <= self.tag_at(self.first):
            return self.first
        if tag - self.tag_at(self.first) < high - self.first:
            high = self.first + (tag - self.tag_at(self.first))
        while low < high:
            middle = low + (high - low) // 2
            if self.tag_at(middle) < tag:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Unacked* find(self, uint64_t tag) noexcept:
        """The open entry of `tag`, or NULL."""
        cdef uint64_t behind = self.next - tag - 1
        cdef Unacked* entry
        cdef uint64_t at
        if self.is_dense:
            if behind >= self.end - self.first:
                return NULL
            entry = &self.entries[(self.end - behind - 1) & self.mask]
            return entry if entry.consumer != NULL else NULL
        at = self.position_of(tag)
        return self.open_at(at) if at != self.end and self.tag_at(at) == tag else NULL

    cdef Unacked* open_at(self, uint64_t at) noexcept:
        """The entry at a position that was one, or NULL if it is settled."""
        cdef Unacked* entry
        if at < self.first:
            return NULL
        entry = &self.entries[at & self.mask]
        return entry if entry.consumer != NULL else NULL

    cdef void settle(self, Unacked* entry) noexcept:
        """Closes an open entry."""
        entry.consumer = NULL
        self.count -= 1
        if self.count == 0:
            self.first = self.end
            self.is_dense = True
            if self.capacity > CAPACITY_KEPT:
                self.give_back()
            return
        while self.entries[self.first & self.mask].consumer == NULL:
            self.first += 1
        if not self.is_dense and self.tag_at(self.first) + (self.end - self.first) == self.next:
            self.is_dense = True

    cdef void settle_run(self, uint64_t at, size_t count) noexcept:
        """Closes the open entries at [at, at + count)."""
        cdef size_t i
        for i in range(count - 1):
            self.entries[(at + i) & self.mask].consumer = NULL
        self.count -= count - 1
        self.settle(&self.entries[(at + count - 1) & self.mask])
