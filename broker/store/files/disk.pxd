from libc.stdint cimport uint64_t

from broker.store.files.operation cimport File, Op


cdef File* file_new(str path) except NULL
cdef int directory_open(File* file) noexcept nogil
cdef void file_close(File* file) noexcept
cdef void file_free(File* file) noexcept
cdef void run_op(Op* op) noexcept nogil
cdef ssize_t read_now(int fd, void* data, size_t length, uint64_t offset) noexcept nogil
