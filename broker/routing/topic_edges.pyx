# cython: language_level=3
"""The named children of a topic tree's nodes: a hash table of (node, word) to child.

Clients choose which nodes have which words, and so the keys: where an entry lies depends on a
secret, or they would choose a million that lie in one row. When it grows, its entries move some
at a time with what is added: a million at once would take 30 ms.
"""

import os

from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free

from broker.kernel.mixing cimport mixed

cdef enum:
    # Places of the table before that are moved with each entry that is added. Two would do: half as
    # many entries as it has places are added before the table grows again.
    MOVED = 16


cdef class EdgeTable:
    """See the module."""

    def __cinit__(self):
        self.secret = int.from_bytes(os.urandom(8), "little")
        self.mask = 15
        self.edges = <Edge*> calloc(16, sizeof(Edge))
        if self.edges == NULL:
            raise MemoryError

    def __dealloc__(self):
        self.free_all()

    cdef void free_all(self) noexcept nogil:
        """The table must not be used any more."""
        free(self.edges)
        free(self.old_edges)
        self.edges = self.old_edges = NULL

    cdef int32_t find_before(self, uint64_t key) noexcept:
        """The child of a key in the table before it grew, where what has moved stands still."""
        cdef Edge* edge = self.before(key)
        return edge.child if edge != NULL else NONE

    cdef Edge* before(self, uint64_t key) noexcept:
        cdef uint64_t at = mixed(key ^ self.secret) & self.old_mask
        while self.old_edges[at].key != 0:
            if self.old_edges[at].key == key:
                return self.old_edges + at
            at = (at + 1) & self.old_mask
        return NULL

    cdef int put(self, uint64_t key, int32_t child) except -1:
        if self.used * 2 > self.mask:
            self.grow()
        self.used += 1
        self.place(key, child)
        if self.old_edges != NULL:
            self.move(MOVED)
        return 0

    cdef void place(self, uint64_t key, int32_t child) noexcept:
        cdef uint64_t at = mixed(key ^ self.secret) & self.mask
        while self.edges[at].key != 0:
            at = (at + 1) & self.mask
        self.edges[at].key = key
        self.edges[at].child = child

    cdef int grow(self) except -1:
        cdef uint64_t length = self.mask + 1
        cdef Edge* grown
        if self.old_edges != NULL:
            self.move(self.old_mask + 1)
        grown = <Edge*> calloc(length * 2, sizeof(Edge))
        if grown == NULL:
            raise MemoryError
        self.old_edges = self.edges
        self.old_mask = self.mask
        self.old_moved = 0
        self.edges = grown
        self.mask = length * 2 - 1
        return 0

    cdef void move(self, uint64_t count) noexcept:
        """Moves the next `count` places of the previous table. The moved entries stay there, so
        that entries behind them are found; the new table is searched first."""
        cdef Edge* edge
        while count and self.old_moved <= self.old_mask:
            edge = self.old_edges + self.old_moved
            self.old_moved += 1
            count -= 1
            if edge.key != 0 and edge.child != NONE:
                self.place(edge.key, edge.child)
        if self.old_moved > self.old_mask:
            free(self.old_edges)
            self.old_edges = NULL

    cdef void drop(self, uint64_t key) noexcept:
        """Removes an entry, and moves those behind it up that would not be found any more."""
        cdef uint64_t at = mixed(key ^ self.secret) & self.mask
        cdef uint64_t ahead
        cdef uint64_t home
        cdef Edge* old = self.before(key) if self.old_edges != NULL else NULL
        if old != NULL:
            old.child = NONE
        self.used -= 1
        while self.edges[at].key != key:
            if self.edges[at].key == 0:
                return            # it has not moved yet
            at = (at + 1) & self.mask
        ahead = at
        while True:
            ahead = (ahead + 1) & self.mask
            if self.edges[ahead].key == 0:
                break
            home = mixed(self.edges[ahead].key ^ self.secret) & self.mask
            if ((ahead - home) & self.mask) >= ((ahead - at) & self.mask):
                self.edges[at] = self.edges[ahead]
                at = ahead
        self.edges[at].key = 0

    cdef uint64_t longest_way(self) noexcept:
        """Places that `find` looks at for the entry that lies farthest from its own."""
        cdef uint64_t longest = 0
        cdef uint64_t at
        for at in range(self.mask + 1):
            if self.edges[at].key != 0:
                longest = max(
                    longest, ((at - mixed(self.edges[at].key ^ self.secret)) & self.mask) + 1)
        return longest
