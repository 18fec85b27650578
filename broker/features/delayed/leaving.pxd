from broker.kernel.message cimport Place
from broker.queues.wide_letter cimport WideLetter


cdef class Refused:
    cdef Place place
    cdef set takers                      # the queues that have it, None if there are none
    cdef set waits                       # of one to very many, those that refused it; else None
    cdef int given                       # NEEDS_SYNC if one of those is to be synced
    cdef bint is_told                    # the log says why it stays


cdef class Leaving:
    cdef readonly WideLetter letter
    cdef Place place
    cdef Refused refused                 # None: it was not refused before
    cdef Py_ssize_t at                   # its place among those, if it is refused
