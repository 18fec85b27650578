from libc.stdint cimport uint64_t

from broker.kernel.message cimport Message
from broker.store.stream_summary cimport Summary


cpdef enum:
    BY_DEFAULT = 0               # any of the values, and all of the headers
    ALL = 1
    ANY = 2


cdef class StreamFilter:
    cdef readonly list values            # bytes
    cdef readonly list headers           # (name, value) as bytes
    cdef list hashes                     # of the values
    cdef readonly bint match_unfiltered
    cdef readonly int match

    cdef bint takes(self, Message* message) except -1
    cdef bint may_take(self, Summary segment) except -1
