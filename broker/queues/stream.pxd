from libc.stdint cimport uint8_t, uint32_t

from broker.kernel.message cimport Message
from broker.queues.declared cimport DeclaredQueue
from broker.queues.stream_reader cimport Readers
from broker.store.streams.store cimport SharedHeaders, StreamStore


cdef class StreamQueue(DeclaredQueue):
    cdef readonly object retention
    cdef readonly StreamStore store
    cdef readonly Readers readers
    cdef object timer
    cdef bint cannot_drop          # retention failed, and that is logged

    cdef int drop_old(self) except -1
    cdef int publish_sharing(self, Message* message, bint confirm, const uint8_t* noted,
                             uint32_t noted_length, SharedHeaders* shared) except -1
    cdef bint publish_alike(self, const Message* messages, uint32_t count, SharedHeaders* shared,
                            const uint8_t* table, uint32_t table_length,
                            bint with_body) except -1
