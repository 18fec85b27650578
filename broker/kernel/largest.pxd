from libc.stdint cimport int64_t


cdef class Largest:
    cdef dict counts             # each number, and how often it is there
    cdef dict groups             # number >> GROUP_BITS, and how many different numbers it has
    cdef readonly int64_t most

    cpdef int add(self, int64_t number) except -1
    cpdef int remove(self, int64_t number) except -1
    cdef int64_t found(self)
