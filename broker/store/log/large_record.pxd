from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.large_body cimport LargeBody
from broker.kernel.message cimport Message
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.io_thread cimport Round
from broker.store.files.operation cimport File
from broker.store.files.record cimport RecordHead


cdef class LargeRecord:
    cdef LargeBody whole             # its body, behind the front of the record
    cdef uint32_t segment
    cdef uint32_t position
    cdef bint is_sound

    cdef bint is_at(self, uint32_t segment, uint32_t position) noexcept
    cdef int read(self, Persister persister, File* file, uint64_t incarnation, uint32_t segment,
                  uint32_t position, const RecordHead* head, Dirty owner) except -1
    cdef int done(self, Round* round) except -1


cdef uint32_t large_front(const uint8_t* record, size_t have, uint64_t room) noexcept
cdef void large_view(LargeRecord large, const uint8_t* record, Message* message) noexcept
