from libc.stdint cimport uint32_t

from broker.kernel.message cimport Place


# Why a message leaves a queue without an ack.
cdef enum:
    DEAD_REJECTED = 0
    DEAD_EXPIRED = 1
    DEAD_MAXLEN = 2
    DEAD_DELIVERY_LIMIT = 3


cdef struct Death:
    Place place
    int reason


cdef class Dying:
    cdef Death* entries
    cdef uint32_t capacity
    cdef uint32_t first
    cdef readonly uint32_t count
    cdef readonly uint32_t most      # at this number no further message dies

    cdef int add(self, Place* place, int reason) except -1
    cdef Death* head(self) noexcept
    cdef void pop(self) noexcept
