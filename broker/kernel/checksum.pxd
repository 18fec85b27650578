from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef uint32_t crc32c_of(uint32_t seed, const uint8_t* data, size_t length) noexcept nogil
cdef uint32_t place_seed(uint64_t incarnation, uint32_t segment, uint32_t position) noexcept nogil
