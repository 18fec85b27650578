from libc.stdint cimport uint64_t

from broker.store.files.operation cimport File, FileList
from broker.store.files.io_thread cimport Round


cdef class OpenFiles:
    cdef FileList files              # the newest use last
    cdef readonly uint64_t limit
    cdef uint64_t used              # how often a file was asked for

    cdef int use(self, Round* round, File* file) except -1
    cdef void close_some(self) noexcept
    cdef void forget(self, File* file) noexcept
