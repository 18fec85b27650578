from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.store.commit.content_file cimport ContentFile
from broker.wire.confirming cimport ConfirmingChannel


cdef enum:
    EXPECT_METHOD = 0
    EXPECT_HEADER = 1
    EXPECT_BODY = 2


cdef class CollectingChannel(ConfirmingChannel):
    cdef int expect
    cdef uint64_t body_length
    cdef uint64_t body_received
    cdef uint64_t body_in_memory         # a larger body that comes in parts is collected in a file
    cdef ContentFile collected           # that file, or None

    cdef int content(self, const uint8_t* body) except -1
    cdef int collect(self, const uint8_t* payload, uint32_t length) except -1
    cdef int drop_collected(self) except -1
