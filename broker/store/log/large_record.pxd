from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.large_body cimport LARGE_BODY, LargeBody
from broker.kernel.message cimport BODY_IS_REFERENCE, Message
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.io_thread cimport Round
from broker.store.files.operation cimport File
from broker.store.files.record cimport RECORD_FIXED, RecordHead, record_fits, record_view


cdef class LargeRecord:
    cdef LargeBody whole             # its body, behind the front of the record
    cdef bytes front                 # a copy: a body store that takes the body writes before it
    cdef uint32_t segment
    cdef uint32_t position
    cdef bint is_sound

    cdef bint is_at(self, uint32_t segment, uint32_t position) noexcept
    cdef int read(self, Persister persister, File* file, uint64_t incarnation, uint32_t segment,
                  uint32_t position, const RecordHead* head, Dirty owner) except -1
    cdef int done(self, Round* round) except -1


# Both are asked for each record that is read, of which next to none is large.
cdef inline uint32_t large_front(const uint8_t* record, size_t have, uint64_t room) noexcept:
    """Bytes before the body of a record that has a large one and ends within `room` bytes. 0: it
    has none, or too little of it is there to see."""
    cdef const RecordHead* head = <const RecordHead*> record
    if (have < RECORD_FIXED or head.body_length < LARGE_BODY or head.flags & BODY_IS_REFERENCE
            or not record_fits(record, room)):
        return 0
    return head.length + 4 - head.body_length


cdef inline void large_view(LargeRecord large, const uint8_t* record, Message* message) noexcept:
    """As `record_view`; `record` may be the front of this large one."""
    record_view(record, message)
    if large is not None and message.body_length >= LARGE_BODY and message.body != NULL:
        message.large = <void*> large.whole
        message.body = large.whole.body()
