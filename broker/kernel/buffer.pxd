from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef class Buffer:
    cdef uint8_t* data
    cdef size_t length
    cdef size_t capacity

    cdef uint8_t* room(self, size_t more) except NULL
    cdef int add(self, const void* source, size_t length) except -1
    cdef void drop(self, size_t count) noexcept
    cdef void release(self) noexcept


cdef inline uint16_t load16(const uint8_t* p) noexcept nogil:
    return (<uint16_t> p[0] << 8) | p[1]


cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    return (<uint32_t> p[0] << 24) | (<uint32_t> p[1] << 16) | (<uint32_t> p[2] << 8) | p[3]


cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    return (<uint64_t> load32(p) << 32) | load32(p + 4)


cdef inline void store16(uint8_t* p, uint16_t value) noexcept nogil:
    p[0] = <uint8_t> (value >> 8)
    p[1] = <uint8_t> value


cdef inline void store32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t> (value >> 24)
    p[1] = <uint8_t> (value >> 16)
    p[2] = <uint8_t> (value >> 8)
    p[3] = <uint8_t> value


cdef inline void store64(uint8_t* p, uint64_t value) noexcept nogil:
    store32(p, <uint32_t> (value >> 32))
    store32(p + 4, <uint32_t> value)
