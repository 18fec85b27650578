from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.operation cimport File


cdef class IdLog(Dirty):
    cdef Persister persister
    cdef readonly str directory
    cdef readonly uint64_t incarnation
    cdef readonly uint32_t entries_max   # of one file
    cdef bint directory_made
    cdef bint deleted
    cdef File* file                      # the one that grows
    cdef uint32_t number
    cdef uint32_t entries                # in it, as handed to the writer
    cdef list older                      # [(number, entries)] of the files before it, oldest first
    cdef list leaving                    # addresses of files that go when they are in use no more
    cdef list pending                    # [(id, expires, published)] not yet handed to the writer
    cdef list ready                      # those before them, for the round that has begun

    cdef int start_file(self, uint32_t number) except -1
    cdef bint any_busy(self) except *
