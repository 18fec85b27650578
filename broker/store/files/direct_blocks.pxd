"""Whole blocks of a segment, which is what direct I/O takes."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memset

from broker.store.files.operation cimport BLOCK_BYTES, File, Op


cdef enum:
    SMALL_BYTES = 16 << 10       # of a round; a sync of more takes its time anyway
    BLOCKS_BYTES = 24 << 10      # the blocks of such a round, with the one that it begins in


cdef inline size_t put_blocks(Op* op, uint8_t* blocks) noexcept nogil:
    """Puts together the whole blocks that hold the records of an operation, sealed, with what
    stands before and the zeros behind them. Returns their length."""
    cdef size_t before = op.offset % BLOCK_BYTES
    cdef size_t length = before + op.length
    cdef size_t whole = length + (BLOCK_BYTES - length % BLOCK_BYTES) % BLOCK_BYTES
    memcpy(blocks, op.file.block, before)
    memcpy(blocks + before, op.data, op.length)
    memset(blocks + length, 0, whole - length)
    return whole


cdef inline void note_blocks(Op* op, const uint8_t* blocks) noexcept nogil:
    """The blocks of an operation were written: notes where the records end, and the last block."""
    cdef File* file = op.file
    cdef uint64_t last
    file.written = op.offset + op.length
    # Where a block is full, the next records begin with another one, and nothing is before them.
    last = (file.written - 1) // BLOCK_BYTES - op.offset // BLOCK_BYTES
    memcpy(file.block, blocks + last * BLOCK_BYTES, BLOCK_BYTES)
