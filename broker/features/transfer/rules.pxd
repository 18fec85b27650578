from libc.stdint cimport int64_t

from broker.kernel.message cimport Message


cdef class Rules:
    cdef object key_matches      # of a routing key, or None
    cdef bytes header            # name of the header, or None
    cdef str value
    cdef bytes value_octets
    cdef int64_t since
    cdef int64_t until

    cdef bint match(self, Message* message) except -1
