from libc.stdint cimport uint8_t


cdef extern from "broker/kernel/short_copy.h" nogil:
    void short_copy(uint8_t* to, const uint8_t* source, size_t length)
    bint short_equal(const uint8_t* a, const uint8_t* b, size_t length)
