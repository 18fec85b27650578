# cython: language_level=3
"""The local copy of a segment whose file is not on this disk any more: a file of the segment's
length with holes, which another process fills block by block.

It is a cache: written without a sync, and thrown away at a start.
"""

from libc.stdint cimport uint64_t

from broker.schema.tier_work import BLOCK
from broker.store.commit.persister cimport Persister
from broker.store.files.disk cimport file_new
from broker.store.files.io_thread cimport Round, STAGE_REMOVE, round_add, round_new
from broker.store.files.operation cimport OP_UNLINK

cdef uint64_t block_bytes = BLOCK


cdef class ColdFile:
    """The copy of a segment of `length` bytes at `path`, which is not there yet."""

    def __init__(self, Persister persister, str path, uint64_t length):
        self.persister = persister
        self.path = path
        self.length = length
        self.blocks = set()
        self.file = file_new(path)

    @property
    def is_busy(self) -> bool:
        """Whether a read of it is under way."""
        return self.file != NULL and self.file.busy > 0

    cdef bint holds(self, uint64_t position, size_t length) except -1:
        """Whether all of these bytes are there."""
        cdef uint64_t block = position // block_bytes
        cdef uint64_t last = (position + length - 1) // block_bytes
        while block <= last:
            if block not in self.blocks:
                return False
            block += 1
        return True

    def has(self, uint64_t position, size_t length) -> bool:
        """As `holds`. For Python."""
        return self.holds(position, length)

    def remove(self) -> None:
        """Removes the file; no read may be under way."""
        cdef Round* round
        if self.file == NULL:
            return
        round = round_new()
        self.persister.files.forget(self.file)
        # The thread frees it behind the removal.
        round_add(round, STAGE_REMOVE, OP_UNLINK, self.file)
        self.file = NULL
        self.blocks = set()
        self.persister.background.remove(round)
