from libc.stdint cimport uint8_t, uint32_t


cdef int check_table(const uint8_t* p, uint32_t length) except -1
cdef int walk_properties(const uint8_t* p, uint32_t length) except -1
