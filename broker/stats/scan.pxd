from libc.stdint cimport uint64_t

from broker.queues.declared cimport DeclaredQueue
from broker.stats.gauge cimport WIDTH_MAX
from broker.wire.channel cimport Channel


cdef class Sums:
    cdef double levels[3]
    cdef double risen[WIDTH_MAX]
    cdef readonly uint64_t consumers
    cdef readonly uint64_t looked    # objects that were compared
    cdef readonly uint64_t changed   # objects of which a row was taken

    cpdef bint has_risen(self) noexcept
    cpdef dict rises(self, str kind, wanted)


cdef int read_queue(DeclaredQueue queue, double* row, double* signs) except -1
cdef void count_channel(Channel channel, double* row) noexcept
cpdef int finish(str kind, thing, Sums sums) except -1
