from libc.stdint cimport uint64_t

from broker.store.files.operation cimport File
from broker.store.files.io_thread cimport Round
from broker.store.log.segments cimport Segment, Segments


cdef uint64_t punch_when(Segment* segment) noexcept


cdef class Sealed(Segments):
    cdef bint synced(self, File* file) noexcept
    cdef bint background(self) except? True
    cdef bint summarise(self, Segment* segment) except? True
    cdef bint punch(self, Segment* segment) except? True
    cdef int background_done(self, Round* round) except -1
