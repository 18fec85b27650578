from libc.stdint cimport uint8_t, uint64_t


cdef class RotatingBloom:
    cdef readonly uint64_t capacity      # entries that it is made for
    cdef readonly uint64_t filter_bytes  # of one filter
    cdef readonly uint64_t seed
    cdef readonly uint64_t adds          # entries since the last rotation, and those it began with
    cdef readonly uint64_t removes       # since the last rotation
    cdef readonly uint64_t rotations
    cdef public uint64_t false_positives
    cdef uint8_t* active
    cdef uint8_t* next                   # NULL at rest

    cdef void mark(self, uint8_t* bits, const uint8_t* id) noexcept nogil
    cdef bint marked(self, const uint8_t* bits, const uint8_t* id) noexcept nogil
