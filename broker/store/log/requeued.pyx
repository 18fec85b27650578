# cython: language_level=3
"""Messages that came back: a heap of their places, so that the oldest is delivered first again."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from broker.kernel.message cimport Place


cdef class Requeued:
    """Places and record lengths, by position. Owns no memory while it is empty."""

    def __dealloc__(self):
        free(self.entries)

    cdef int push(self, Place* place) except -1:
        cdef uint64_t key = <uint64_t> place.segment << 32 | place.position
        cdef uint32_t at, parent
        cdef Entry* grown
        if self.gone is not None and key in self.gone:
            self.gone.remove(key)
            return 0
        if self.count == self.capacity:
            at = self.capacity * 2 if self.capacity else 16
            grown = <Entry*> realloc(self.entries, at * sizeof(Entry))
            if grown == NULL:
                raise MemoryError("no memory for requeued messages")
            self.entries = grown
            self.capacity = at
        at = self.count
        self.count += 1
        while at:
            parent = (at - 1) >> 1
            if self.entries[parent].key <= key:
                break
            self.entries[at] = self.entries[parent]
            at = parent
        self.entries[at].key = key
        self.entries[at].length = place.length
        self.entries[at].body_length = place.body_length
        return 0

    cdef bint first_is(self, uint32_t segment, uint32_t position) noexcept:
        """Whether this place is the oldest one here."""
        return self.count != 0 and self.entries[0].key == (<uint64_t> segment << 32 | position)

    cdef void first(self, Place* place) noexcept:
        """The oldest place."""
        place.segment = <uint32_t> (self.entries[0].key >> 32)
        place.position = <uint32_t> self.entries[0].key
        place.length = self.entries[0].length
        place.body_length = self.entries[0].body_length
        place.redelivered = 1

    cdef void pop(self) noexcept:
        """Takes the oldest place away."""
        if self.entries[0].key > self.popped:
            self.popped = self.entries[0].key
        self.drop_first()

    cdef Requeued copy(self):
        """The same places, for a reader of its own. Of those in a copy, a place above `popped` is
        still here."""
        cdef Requeued other = Requeued()
        if self.count:
            other.entries = <Entry*> malloc(self.count * sizeof(Entry))
            if other.entries == NULL:
                raise MemoryError("no memory for a copy of requeued messages")
            memcpy(other.entries, self.entries, self.count * sizeof(Entry))
            other.capacity = other.count = self.count
        if self.gone:
            other.gone = set(self.gone)
        self.popped = 0
        return other

    cdef int take(self, uint64_t key) except -1:
        """Takes away a place that is here, wherever it stands in the order."""
        if self.entries[0].key == key:
            self.drop_first()
            return 0
        if self.gone is None:
            self.gone = set()
        self.gone.add(key)
        return 0

    cdef void drop_first(self) noexcept:
        """Removes the first entry, and then what `take` left at the top."""
        self.drop_entry()
        while self.gone is not None and self.count and self.entries[0].key in self.gone:
            self.gone.remove(self.entries[0].key)
            self.drop_entry()

    cdef void drop_entry(self) noexcept:
        cdef Entry last
        cdef uint32_t at = 0
        cdef uint32_t child
        self.count -= 1
        if self.count == 0:
            free(self.entries)
            self.entries = NULL
            self.capacity = 0
            return
        last = self.entries[self.count]
        while True:
            child = 2 * at + 1
            if child >= self.count:
                break
            if child + 1 < self.count and self.entries[child + 1].key < self.entries[child].key:
                child += 1
            if self.entries[child].key >= last.key:
                break
            self.entries[at] = self.entries[child]
            at = child
        self.entries[at] = last
