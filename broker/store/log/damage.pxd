cimport cython
from libc.stdint cimport uint8_t, uint32_t

from broker.store.log.segments cimport Segments


@cython.final
cdef class Damage:
    cdef Segments segments
    cdef tuple gap                   # the last found: segment, position, length, first bytes

    cdef int keep(self, uint32_t number, uint32_t position, uint8_t* start, size_t have,
                  size_t length) except -1
    cdef int search(self, uint32_t number, uint32_t position, uint32_t limit, uint32_t end,
                    then) except -1
    cdef bint is_found(self, uint32_t number, uint32_t position) except? True
    cdef uint32_t take(self, uint32_t* body) except? 0
