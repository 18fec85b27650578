# cython: language_level=3
"""Holes: the disk space of what is settled in a sealed segment, given back while the rest stays."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strdup, strrchr

from broker.store.files.operation cimport OP_PUNCH
from broker.store.files.observer cimport observed
from broker.store.files.spans cimport Settled, Span, read_settled, settled_free


cdef extern from "broker/store/files/native.h" nogil:
    int native_errno()
    int native_read_all(int fd, uint8_t* data, size_t length, uint64_t offset, size_t* done)
    int native_punch(int fd, uint64_t offset, uint64_t length)
    int native_block_size(int fd)


cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char* path, int flags, int mode)
    int O_RDWR, O_RDONLY, O_CLOEXEC


cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)


cdef int punch(Op* op) noexcept nogil:
    """Gives the settled stretches of a segment back to the file system, as far as they cover whole
    blocks. What is settled is read from the first `length` bytes of its acks file, which are
    synced. Leaves in `done` how many bytes of the segment are holes."""
    cdef int error = 0
    cdef int messages = -1
    cdef int acks = -1
    cdef char* acks_path = strdup(op.path)
    cdef char* name
    cdef uint8_t* data = <uint8_t*> malloc(op.length + 1)
    cdef size_t have = 0
    cdef Settled settled
    cdef uint64_t block, first, last
    cdef uint32_t i
    cdef Span* span
    settled.spans = settled.returns = NULL
    op.done = 0
    if acks_path == NULL or data == NULL:
        free(acks_path)
        free(data)
        return 12
    name = strrchr(acks_path, 47) + 1
    memcpy(name, <const char*> b"acks", 4)
    messages = c_open(op.path, O_RDWR | O_CLOEXEC, 0)
    acks = c_open(acks_path, O_RDONLY | O_CLOEXEC, 0)
    if messages < 0 or acks < 0:
        error = native_errno()
    else:
        error = native_read_all(acks, data, op.length, 0, &have)
    if error == 0:
        error = read_settled(data, have, op.incarnation, op.segment, &settled)
    if error == 0:
        block = <uint64_t> native_block_size(messages)
        for i in range(settled.count):
            span = &settled.spans[i]
            first = (span.position + block - 1) // block * block
            last = (<uint64_t> span.position + span.length) // block * block
            if last <= first:
                continue
            error = native_punch(messages, first, last - first)
            observed(OP_PUNCH, op.path, first, last - first, error, NULL, 0)
            if error:
                break
            op.done += last - first
    settled_free(&settled)
    free(data)
    free(acks_path)
    if messages >= 0:
        c_close(messages)
    if acks >= 0:
        c_close(acks)
    return error
