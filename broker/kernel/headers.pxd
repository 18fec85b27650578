from libc.stdint cimport uint8_t, uint32_t


cdef const uint8_t* find_header(const uint8_t* properties, uint32_t length, const uint8_t* name,
                                uint8_t name_length, uint32_t* size) noexcept nogil
cdef const uint8_t* find_field(const uint8_t* p, const uint8_t* end, const uint8_t* name,
                               uint8_t name_length, uint32_t* size) noexcept nogil
cdef const uint8_t* header_place(const uint8_t* properties, uint32_t length) noexcept nogil
cdef const uint8_t* header_table(const uint8_t* properties, uint32_t length) noexcept nogil
