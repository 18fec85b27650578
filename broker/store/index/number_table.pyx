# cython: language_level=3
"""A table from a number to two numbers: what is known of few messages out of many, such as the
shared bodies of a queue's unacked messages. It owns no memory while it is empty."""

import os

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from broker.kernel.mixing cimport mixed

# Clients choose which of their messages have a row: they must not know where it lies.
cdef uint64_t secret = int.from_bytes(os.urandom(8), "little")


cdef class NumberTable:
    """Open addressing; a row stays where it is until the next `put` or `remove`."""

    def __dealloc__(self):
        free(self.rows)

    cdef Row* find(self, uint64_t key) noexcept:
        """The row of a key, or NULL."""
        cdef uint64_t at
        if self.count == 0:
            return NULL
        at = mixed(key ^ secret) & self.mask
        while self.rows[at].key:
            if self.rows[at].key == key:
                return &self.rows[at]
            at = (at + 1) & self.mask
        return NULL

    cdef Row* put(self, uint64_t key) except NULL:
        """The row of a key (not 0), made if it is missing."""
        cdef Row* found = self.find(key)
        cdef uint64_t at
        if found != NULL:
            return found
        if self.rows == NULL:
            self.resize(16)
        elif (self.count + 1) * 4 > (self.mask + 1) * 3:
            self.resize((self.mask + 1) * 2)
        at = mixed(key ^ secret) & self.mask
        while self.rows[at].key:
            at = (at + 1) & self.mask
        self.rows[at].key = key
        self.count += 1
        return &self.rows[at]

    cdef void remove(self, Row* row) noexcept:
        cdef uint64_t hole = row - self.rows
        cdef uint64_t at = hole
        cdef uint64_t home
        self.count -= 1
        if self.count == 0:
            free(self.rows)
            self.rows = NULL
            return
        while True:
            at = (at + 1) & self.mask
            if not self.rows[at].key:
                break
            home = mixed(self.rows[at].key ^ secret) & self.mask
            # A row that a probe could not reach any more moves into the hole.
            if (at - home) & self.mask >= (at - hole) & self.mask:
                self.rows[hole] = self.rows[at]
                hole = at
        self.rows[hole].key = 0

    cdef int resize(self, uint64_t capacity) except -1:
        cdef Row* old = self.rows
        cdef uint64_t size = self.mask + 1 if old != NULL else 0
        cdef uint64_t i, at
        self.rows = <Row*> calloc(capacity, sizeof(Row))
        if self.rows == NULL:
            self.rows = old
            raise MemoryError("no memory for a table")
        self.mask = capacity - 1
        for i in range(size):
            if old[i].key:
                at = mixed(old[i].key ^ secret) & self.mask
                while self.rows[at].key:
                    at = (at + 1) & self.mask
                self.rows[at] = old[i]
        free(old)
        return 0
