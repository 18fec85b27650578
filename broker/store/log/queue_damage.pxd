from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.message cimport Place
from broker.store.log.queue_bodies cimport QueueBodies
from broker.store.log.requeued cimport Requeued
from broker.store.log.segments cimport Segment


cdef class QueueDamage(QueueBodies):
    cdef Requeued requeued
    cdef readonly uint64_t ready
    cdef readonly uint64_t ready_bytes
    cdef readonly uint64_t total
    cdef readonly uint64_t total_bytes
    cdef Segment* read_segment       # segment of the read buffer's data; NULL: empty
    cdef bint at_taken               # the read at hand is for a message that was taken
    cdef bint damaged
    cdef list lost                   # places of messages that came back and are unreadable now
    cdef tuple gap                   # found by `search_behind`: segment, position, length, begin

    cdef int settle(self, Place* place) except -1
    cdef int pass_over(self, Segment* segment, uint32_t position, uint8_t* record,
                       size_t have) except -1
    cdef int search_behind(self, Segment* segment, uint32_t position) except -1
    cdef int pass_gap(self, Segment* segment, uint32_t position) except -1
    cdef int count_lost(self, Segment* segment) except -1
    cdef uint32_t written_end(self, Segment* segment, uint32_t position) noexcept
