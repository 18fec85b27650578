# cython: language_level=3
"""Space behind the end of a file, so that what is added to it later needs none of a full disk."""

import os

from libc.stdint cimport uint64_t


cdef extern from "<fcntl.h>" nogil:
    int FALLOC_FL_KEEP_SIZE
    int fallocate(int fd, int mode, long offset, long length)


def allocate_ahead(str path, uint64_t length) -> bool:
    """Gives a file space for `length` bytes more than it has; its length stays. False where the
    disk has none, or the file system cannot. Raises OSError if the file cannot be opened."""
    cdef int fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    cdef int failed
    cdef long size
    try:
        size = os.fstat(fd).st_size
        with nogil:
            failed = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size + <long> length)
    finally:
        os.close(fd)
    return failed == 0
