from libc.stdint cimport int64_t, uint64_t

from broker.queues.classic cimport ClassicQueue
from broker.store.log.browse cimport Browse
from broker.store.log.contracts cimport MessageStore


cdef class Peek:
    cdef ClassicQueue queue
    cdef MessageStore store        # the one that `browse` goes over
    cdef Browse browse
    cdef Py_ssize_t count
    cdef uint64_t bytes_left
    cdef int64_t shown_bytes     # of each body at most; -1 = all
    cdef readonly list rows
    cdef readonly uint64_t too_large
