from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.store.log.queue_bodies cimport EMPTY, FOUND, WAIT
from broker.store.log.queue_damage cimport QueueDamage
from broker.store.log.segments cimport Segment


cdef enum:
    LEVELS = 256                     # of priority, at most; `next_level(LEVELS)` is the highest

# A mark that nothing is behind (`QueueStore.is_behind`).
cdef uint64_t NO_END


cdef class QueueStore(QueueDamage):
    cdef bint any_expires            # recovered messages have an expiration of their own
    cdef uint8_t* read_data
    cdef size_t read_capacity
    cdef size_t read_length
    cdef uint32_t read_position
    cdef bint read_short             # the file ended before what was asked for
    cdef dict returns                # place -> how often it came back, where there is a limit
    cdef uint32_t lent               # taken out of the middle by a transfer, and not settled

    cdef int read(self, Place* place, Message* message) except -1
    cdef uint64_t end(self) noexcept
    cdef bint is_behind(self, Place* place, uint64_t end) noexcept
    cdef uint32_t count_return(self, Place* place) except? 0
    cdef uint32_t returns_of(self, Place* place) except? 0

    cdef int append(self, Message* message) except -1
    cdef int peek(self, Message* message, Place* place) except -1
    cdef int next_level(self, int above) noexcept
    cdef int peek_at(self, int level, Message* message, Place* place) except -1
    cdef int look_at(self, int level, Message* message) except -1
    cdef bint first_place(self, Place* place) noexcept
    cdef int peek_least(self, Message* message, Place* place) except -1
    cdef int64_t deadline_at(self, int level, int64_t queue_ttl) noexcept
    cdef void note_deadline(self, int level, int64_t queue_ttl, int64_t deadline) noexcept
    cdef uint32_t unused_number(self) noexcept
    cdef void go_on_from(self, uint32_t number) noexcept
    cdef QueueStore part(self, uint32_t segment)
    cdef int recovered(self) except -1
    cdef int advance(self, Place* place) except -1
    cdef int requeue(self, Place* place) except -1
    cdef int resolve(self, Message* message, Place* place) except -1
    cdef int leave_segment(self, Segment* segment) except -1
    cdef int view(self, Segment* segment, uint32_t position, Message* message, Place* place,
                  bint redelivered) except -1
    cdef int mark_exactly(self) except -1
    cdef int want_watermark(self, Segment* segment) except -1
    cdef uint8_t* read_record(self, Segment* segment, uint32_t position) except? NULL
    cdef int fetch(self, Segment* segment, uint32_t position, size_t wanted) except -1
