from libc.stdint cimport uint64_t


cdef class Clients:
    cdef readonly uint64_t version
    cdef readonly dict kept

    cpdef void changed(self) noexcept
