"""Whole blocks of a segment, which is what direct I/O takes."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memset

from broker.kernel.streaming_copy cimport streaming_copy
from broker.store.files.operation cimport BLOCK_BYTES, File, Op


cdef enum:
    # Of records that are written at a time, at most: a full tail has 1 MiB and the rest of the
    # record that filled it.
    DIRECT_BYTES = 2 << 20
    # Of those that need no thread. More would keep the loop from other work by being copied, and as
    # many zeros would be much for the disk.
    FLIGHT_BYTES = 160 << 10


cdef inline uint64_t whole_blocks(uint64_t length) noexcept nogil:
    return length + (BLOCK_BYTES - length % BLOCK_BYTES) % BLOCK_BYTES


cdef inline size_t put_blocks(Op* ops, int count, uint8_t* blocks) noexcept nogil:
    """Puts together the whole blocks that hold the sealed records of operations, which follow each
    other in one file, with what stands before and zeros behind. Returns their length."""
    cdef size_t length = ops[0].offset % BLOCK_BYTES
    cdef size_t whole
    cdef int index
    memcpy(blocks, ops[0].file.block, length)
    for index in range(count):
        streaming_copy(blocks + length, ops[index].data, ops[index].length)
        length += ops[index].length
    whole = whole_blocks(length)
    memset(blocks + length, 0, whole - length)
    return whole


cdef inline void note_blocks(Op* ops, int count, const uint8_t* blocks) noexcept nogil:
    """The blocks were written: notes where the records end, and the last block."""
    cdef File* file = ops[0].file
    cdef uint64_t last
    file.written = ops[count - 1].offset + ops[count - 1].length
    # Where a block is full, the next records begin with another one, and nothing is before them.
    last = (file.written - 1) // BLOCK_BYTES - ops[0].offset // BLOCK_BYTES
    memcpy(file.block, blocks + last * BLOCK_BYTES, BLOCK_BYTES)
