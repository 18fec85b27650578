from libc.stdint cimport uint64_t

from broker.store.files.operation cimport File
from broker.store.files.io_thread cimport Round


cdef class OpenFiles:
    cdef File* newest
    cdef File* oldest
    cdef readonly uint64_t count
    cdef readonly uint64_t limit
    cdef uint64_t used              # how often a file was asked for

    cdef int use(self, Round* round, File* file) except -1
    cdef void unlist(self, File* file) noexcept
    cdef void close_some(self) noexcept
    cdef void forget(self, File* file) noexcept
