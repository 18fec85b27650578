# cython: language_level=3
"""Full disks: which errors pass when there is space again, and the reserve that is freed then.

A part of `broker.store.files.disk`; when the reserve is made is decided in
`broker.store.directory.reserve`.
"""

import os

from libc.stdint cimport uint64_t
from libc.stdlib cimport free
from libc.string cimport strdup

from broker.kernel.threads cimport (
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from broker.store.files.gate cimport enter, leave
from broker.store.files.observer cimport observed
from broker.store.files.operation cimport OP_TRUNCATE, File


cdef extern from "broker/store/files/native.h" nogil:
    int native_errno()
    bint native_is_full(int error)
    uint64_t native_free(int fd)


cdef extern from "<unistd.h>" nogil:
    int c_truncate "truncate"(const char* path, uint64_t length)
    int c_ftruncate "ftruncate"(int fd, uint64_t length)


# The end of the disk is not for postponed records: without acks, disk space is never freed.
cdef enum:
    LEFT_FOR_ACKS = 256 << 10

cdef pthread_mutex_t guard
pthread_mutex_init(&guard, NULL)
cdef char* reserve_path = NULL
cdef uint64_t reserve_kept = 0
cdef uint64_t reserve_given = 0
cdef uint64_t reserve_size = 0
cdef bint reserve_whole = False


cdef bint is_full(int error) noexcept nogil:
    """Whether an operation may succeed later, unchanged, when there is space again."""
    return native_is_full(error)


cdef bint give_reserve() noexcept nogil:
    """Frees the reserve when the disk is full, except what the next start needs. False: it was
    freed before."""
    global reserve_whole, reserve_given
    cdef bint given = False
    pthread_mutex_lock(&guard)
    if reserve_whole:
        reserve_whole = False
        given = c_truncate(reserve_path, reserve_kept) == 0
        reserve_given = reserve_size - reserve_kept
    pthread_mutex_unlock(&guard)
    return given


cdef bint is_short() noexcept nogil:
    """Whether the reserve was given and is not made again."""
    return reserve_given != 0


cdef bint has_space(int fd, size_t length) noexcept nogil:
    """Whether records that waited for space may be written: what the reserve gave is not for
    them, nor is the last of the disk."""
    return native_free(fd) >= length + reserve_given + LEFT_FOR_ACKS


cdef void cut_back(File* file, uint64_t length) noexcept nogil:
    """Records found no space: what was written of them is cut from the file, to leave room for
    acks."""
    cdef int error
    enter()
    error = 0 if c_ftruncate(file.fd, length) == 0 else native_errno()
    if error == 0:
        # The zeros behind them are gone, too.
        file.ahead = min(file.ahead, length)
    observed(OP_TRUNCATE, file.path, 0, length, error, NULL, 0)
    leave()


def room(str path) -> int:
    """Bytes on the disk of `path` that records may have, as `has_space` counts."""
    cdef uint64_t kept = reserve_given + LEFT_FOR_ACKS
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = native_free(fd)
    finally:
        os.close(fd)
    return there - kept if there > kept else 0


def make_reserve(str path, uint64_t size, uint64_t kept, bint whole) -> None:
    """Allocates the reserve: `size` bytes, or if not `whole` the `kept` ones for the next start.
    Raises OSError; what there was stays then."""
    global reserve_path, reserve_kept, reserve_whole, reserve_size, reserve_given
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        before = os.fstat(fd).st_size
        try:
            os.posix_fallocate(fd, 0, size if whole else kept)
            os.ftruncate(fd, size if whole else kept)
        except OSError:
            os.ftruncate(fd, before)
            raise
    finally:
        os.close(fd)
    encoded = os.fsencode(path)
    pthread_mutex_lock(&guard)
    free(reserve_path)
    reserve_path = strdup(<char*> encoded)
    reserve_kept = kept
    reserve_size = size
    reserve_whole = whole
    reserve_given = 0 if whole else size - kept
    pthread_mutex_unlock(&guard)
