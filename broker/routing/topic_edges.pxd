cimport cython
from libc.stdint cimport int32_t, uint32_t, uint64_t

from broker.kernel.mixing cimport mixed

cdef enum:
    NONE = -1


cdef struct Edge:
    uint64_t key             # node << 32 | word, plus one: zero is an empty place
    int32_t child


cdef inline uint64_t edge_key(int32_t node, int32_t word) noexcept:
    return (<uint64_t> node << 32 | <uint32_t> word) + 1


@cython.final
cdef class EdgeTable:
    cdef uint64_t secret
    cdef Edge* edges
    cdef uint64_t mask
    cdef uint64_t used
    cdef Edge* old_edges         # before it grew; what was taken from it since leads to NONE
    cdef uint64_t old_mask
    cdef uint64_t old_moved      # how many of its places have moved

    cdef inline int32_t find(self, uint64_t key) noexcept:
        """The child, or NONE."""
        cdef uint64_t at = mixed(key ^ self.secret) & self.mask
        while self.edges[at].key != 0:
            if self.edges[at].key == key:
                return self.edges[at].child
            at = (at + 1) & self.mask
        return NONE if self.old_edges == NULL else self.find_before(key)

    cdef void free_all(self) noexcept nogil
    cdef int32_t find_before(self, uint64_t key) noexcept
    cdef Edge* before(self, uint64_t key) noexcept
    cdef int put(self, uint64_t key, int32_t child) except -1
    cdef void place(self, uint64_t key, int32_t child) noexcept
    cdef int grow(self) except -1
    cdef void move(self, uint64_t count) noexcept
    cdef void drop(self, uint64_t key) noexcept
    cdef uint64_t longest_way(self) noexcept
