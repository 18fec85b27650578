from libc.stdint cimport uint8_t


cdef extern from "broker/kernel/streaming_copy.h" nogil:
    void streaming_copy(uint8_t* to, const uint8_t* source, size_t length)
