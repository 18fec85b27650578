from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.large_body cimport LargeBody
from broker.kernel.message cimport Message
from broker.store.bodies.file cimport BodyFile
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.contracts cimport Dirty


# What BodyReader.want returns; the first two as QueueStore.peek.
cdef enum:
    BODY_FOUND = 1
    BODY_WAIT = 2
    BODY_MISSING = 3


cdef class BodyReader(Dirty):
    cdef BodyStore store
    cdef object wake
    cdef uint64_t last_hit           # its sequence number: looked at again, it counts once
    cdef uint8_t* data
    cdef LargeBody large             # instead of `data`, for one that is
    cdef size_t capacity
    cdef uint8_t id[16]
    cdef uint32_t length
    cdef uint32_t file
    cdef uint32_t offset
    cdef int state
    cdef bint has_ended

    cdef int want(self, Message* message) except -1
    cdef int read(self, uint32_t file, uint32_t offset, uint32_t length) except -1
    cdef int start_reading(self, BodyFile file, uint8_t* data, uint32_t length) except -1
    cdef int check(self, size_t got) except -1
    cdef int found(self, bint is_sound, size_t got) except -1
