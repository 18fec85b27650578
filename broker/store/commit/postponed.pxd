from libc.stdint cimport uint8_t

from broker.store.files.io_thread cimport Round


cdef class Postponed:
    cdef Round* round
    cdef readonly bint any

    cdef int keep(self, Round* round) except -1
    cdef int give(self, Round* round) except -1
    cdef bint holds(self, const uint8_t* data, size_t length=*) noexcept
