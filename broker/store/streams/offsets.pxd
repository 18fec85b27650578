from libc.stdint cimport uint32_t, uint64_t

from broker.store.commit.persister cimport Persister
from broker.store.files.operation cimport File
from broker.store.files.io_thread cimport Round
from broker.store.log.segments cimport QueueDirectory


# The offset at which one consumer continues.
cdef class TrackedOffset:
    cdef readonly bytes tag
    cdef readonly uint64_t offset            # of the last message it is done with
    cdef bint known                          # `offset` was stored, ever
    cdef bint changed                        # since it was handed to the writer
    cdef uint32_t readers           # consumers that continue from it


cdef class ConsumerOffsets:
    cdef str directory
    cdef readonly uint32_t most
    cdef readonly uint64_t forgotten         # tags that made room for others, since the start
    cdef public object forgot                # called with each such tag
    cdef dict tracked                        # tag -> TrackedOffset, longest not stored first
    cdef list changed
    cdef list gone                           # forgotten tags that the file still names
    cdef File* file
    cdef readonly uint32_t number            # of the file
    cdef readonly uint64_t length
    cdef uint64_t live                       # bytes that a new file would have
    cdef list stale                          # names of files that the next sync makes needless
    cdef list retired                        # addresses of files that may be removed

    cdef TrackedOffset track(self, bytes tag)
    cdef int make_room(self) except -1
    cdef int store(self, TrackedOffset tracked, uint64_t offset) except -1
    cdef int freeze(self, Round* round, Persister persister, QueueDirectory folder) except -1
    cdef int written(self, Round* round, Persister persister) except -1
    cdef int free_retired(self) except -1
    cdef int unlink(self, Persister persister, str name) except -1
    cdef bint is_busy(self) noexcept
    cdef int delete(self, Persister persister) except -1
