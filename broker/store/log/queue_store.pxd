from libc.stdint cimport uint8_t, uint32_t

from broker.kernel.message cimport Message, Place
from broker.store.log.contracts cimport EMPTY, FOUND, LEVELS, MessageStore, NO_END, WAIT
from broker.store.log.damage cimport Damage
from broker.store.log.read_buffer cimport ReadBuffer
from broker.store.log.requeued cimport Requeued
from broker.store.log.sealed cimport Sealed
from broker.store.log.segments cimport Segment, Segments


cdef class QueueStore(MessageStore):
    cdef Segments segments
    cdef Sealed sealed               # None until a segment is full
    cdef ReadBuffer buffer           # None until something is read back
    cdef Damage damage               # None until something is unreadable
    cdef Requeued requeued
    cdef dict returns                # place -> how often it came back, where there is a limit
    cdef bint waiting_round          # a delivery waits for a watermark

    cdef ReadBuffer reading(self)
    cdef Sealed sealing(self)
    cdef Damage damaged(self)
    cdef uint32_t fill(self, const Message* messages, uint32_t count) noexcept
    cdef int note_run(self, Segment* segment, const Place* places, uint32_t count) except -1
    cdef int roll(self) except -1
    cdef int note(self, Segment* segment, uint32_t position, uint32_t word) except -1
    cdef int note_at(self, Segment* segment, uint32_t position, uint32_t word) except -1
    cdef int note_returns(self, uint32_t segment, uint32_t position, uint32_t count) except -1
    cdef int leave_segment(self, Segment* segment) except -1
    cdef int drop_segment(self, Segment* segment) except -1
    cdef int view(self, Segment* segment, uint32_t position, Message* message, Place* place,
                  bint redelivered) except -1
    cdef int want_watermark(self, Segment* segment) except -1
    cdef void rest_reading(self) noexcept
    cdef int mark_exactly(self) except -1
    cdef int pick(self, Place* place) except -1
    cdef int put_back(self, Place* place, Segment* segment) except -1
    cdef int pass_over(self, Segment* segment, uint32_t position, uint8_t* record,
                       size_t have) except -1
    cdef int search_behind(self, Segment* segment, uint32_t position) except -1
    cdef int pass_gap(self, Segment* segment, uint32_t position) except -1
    cdef int count_lost(self, Segment* segment) except -1
    cdef int files_free(self) except -1
    cdef int finish_delete(self) except -1
