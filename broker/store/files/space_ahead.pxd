from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.store.files.operation cimport File, Op


cdef struct Frequency:
    uint32_t rounds              # of the last moments
    uint64_t usual_length        # of the longer ones


cdef uint32_t rounds_before
cdef int64_t within_ns


cdef bint is_frequent(File* file, size_t length) noexcept nogil
cdef Frequency frequency_of(File* file) noexcept nogil
cdef void inherit_frequency(File* file, Frequency frequency) noexcept nogil
cdef bint has_room(File* file, size_t length) noexcept nogil
cdef bint is_direct(Op* op) noexcept nogil
cdef void write_direct(Op* op) noexcept nogil
cdef void note_end(Op* op) noexcept nogil
cdef void make_room(Op* op) noexcept nogil
cdef void give_back(Op* op) noexcept nogil
cdef void forget_ahead(File* file) noexcept nogil
