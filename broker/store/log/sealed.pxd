cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.store.commit.contracts cimport Dirty
from broker.store.files.operation cimport File
from broker.store.files.io_thread cimport Round
from broker.store.log.segments cimport Segment, Segments


cdef uint64_t punch_when(Segment* segment) noexcept


@cython.final
cdef class Sealed:
    cdef Segments segments
    cdef uint32_t punching       # a segment's holes are being made

    cdef bint synced(self, File* file) noexcept
    cdef bint work(self, Dirty owner) except? True
    cdef bint summarise(self, Segment* segment, Dirty owner) except? True
    cdef bint punch(self, Segment* segment, Dirty owner) except? True
    cdef int done(self, Round* round) except -1
    cdef int64_t live_bytes(self) noexcept
