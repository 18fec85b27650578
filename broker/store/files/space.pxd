from libc.stdint cimport uint64_t

from broker.store.files.operation cimport File


cdef bint is_full(int error) noexcept nogil
cdef bint give_reserve() noexcept nogil
cdef bint is_short() noexcept nogil
cdef bint has_space(int fd, size_t length) noexcept nogil
cdef void cut_back(File* file, uint64_t length) noexcept nogil
