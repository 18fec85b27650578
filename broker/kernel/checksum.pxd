from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef enum:
    MARK_EVERY = 64                  # bytes between the marks of `crc32c_marks`


cdef uint32_t crc32c_of(uint32_t seed, const uint8_t* data, size_t length) noexcept nogil
cdef uint32_t place_seed(uint64_t incarnation, uint32_t segment, uint32_t position) noexcept nogil
cdef void crc32c_marks(const uint8_t* data, size_t length, uint32_t* marks) noexcept nogil
cdef uint32_t crc32c_stretch(uint32_t seed, const uint8_t* data, const uint32_t* marks,
                             size_t start, uint32_t length) noexcept nogil
