from libc.stdint cimport uint64_t


cdef int recording
cdef int failing(int kind) noexcept nogil
cdef void record_event(const char* kind, const char* path, uint64_t offset, uint64_t length,
                       int error, const void* data, size_t data_length) noexcept nogil
cdef void record_mark(const char* kind, uint64_t number) noexcept nogil
