from libc.stdint cimport uint16_t, uint64_t

from broker.kernel.buffer cimport Buffer


# Method ids of class basic.
cdef enum:
    ACK = 80
    NACK = 120


cdef int write_answer(Buffer out, uint16_t channel, int method, uint64_t tag,
                      bint multiple) except -1


cdef class HeldConfirms:
    cdef uint64_t low                # every tag up to here is confirmed
    cdef readonly uint64_t open      # tags with something still to come
    cdef dict parts                  # tag -> parts still to come, if not one; negative: nacked
    cdef set ahead                   # tags told above `low`
    cdef bint forgot                 # `ahead` was too long to be remembered
    cdef object unsynced             # runs [first, last] of tags that wait for the disk
    cdef list resolved
    cdef list refused

    cdef uint64_t oldest(self) noexcept
    cdef int publish(self, uint64_t tag, int held, bint waits, bint rejected) except -1
    cdef int wait(self, uint64_t first, uint64_t last) except -1
    cdef int synced(self, uint64_t last) except -1
    cdef int more(self, uint64_t tag, int parts) except -1
    cdef int resolve(self, uint64_t tag, bint acked) except -1
    cdef int write(self, Buffer out, uint16_t channel) except -1
