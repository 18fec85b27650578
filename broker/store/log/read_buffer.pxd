cimport cython
from libc.stdint cimport uint8_t, uint32_t

from broker.kernel.message cimport Message
from broker.store.commit.contracts cimport Dirty
from broker.store.files.io_thread cimport Round
from broker.store.log.large_record cimport LargeRecord
from broker.store.log.segments cimport Segment, Segments


# What ReadBuffer.find returns.
cdef enum:
    NOT_READ = 0                     # a thread fetches it
    READ = 1
    UNSOUND = 2


@cython.final
cdef class ReadBuffer:
    cdef Segments segments
    cdef Segment* segment            # of the data; NULL: empty
    cdef uint8_t* data
    cdef size_t capacity
    cdef size_t length
    cdef uint32_t position
    cdef bint short                  # the file ended before what was asked for
    cdef bint busy                   # a thread reads the segments
    cdef LargeRecord large           # one that has a large body; None until there is one

    cdef int find(self, Segment* segment, uint32_t position, Dirty owner, uint8_t** record,
                  size_t* have) except -1
    cdef int find_large(self, Segment* segment, uint32_t position, Dirty owner, uint8_t** record,
                        size_t* have, uint32_t front) except -1
    cdef void view(self, const uint8_t* record, Message* message) noexcept
    cdef int fetch(self, Segment* segment, uint32_t position, size_t wanted,
                   Dirty owner) except -1
    cdef int done(self, Round* round) except -1
    cdef void forget(self, Segment* segment) noexcept
    cdef void empty(self) noexcept
    cdef void rest(self) noexcept
