from libc.stdint cimport uint64_t

from broker.store.commit.persister cimport Persister
from broker.store.files.operation cimport File


cdef class ColdFile:
    cdef Persister persister
    cdef File* file
    cdef readonly str path
    cdef readonly uint64_t length
    cdef public set blocks                   # numbers of those that it holds
    cdef bint removed

    cdef bint holds(self, uint64_t position, size_t length) except -1
