from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef class SoundSearch:
    cdef const uint8_t* data
    cdef size_t length
    cdef bytes content               # keeps `data`
    cdef uint32_t* marks             # see `crc32c_marks`; NULL until something was damaged

    cdef int64_t claim(self, size_t at, uint32_t* seed) noexcept nogil
    cdef size_t next(self, size_t at, size_t end) except? 0
    cdef bint is_sound(self, size_t at) noexcept nogil
    cdef bint may_be_sound(self, size_t at) noexcept nogil


cdef class RecordSearch(SoundSearch):
    cdef uint64_t incarnation
    cdef uint32_t segment
    cdef uint32_t first
