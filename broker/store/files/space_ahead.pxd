from libc.stdint cimport int64_t, uint32_t

from broker.store.files.operation cimport File, Op


cdef uint32_t rounds_before
cdef int64_t within_ns


cdef bint is_frequent(File* file, size_t length) noexcept nogil
cdef uint32_t frequency(File* file) noexcept nogil
cdef void inherit_frequency(File* file, uint32_t rounds) noexcept nogil
cdef bint has_room(File* file, size_t length) noexcept nogil
cdef bint is_direct(Op* op) noexcept nogil
cdef void write_direct(Op* op) noexcept nogil
cdef void note_end(Op* op) noexcept nogil
cdef void make_room(Op* op) noexcept nogil
cdef void give_back(Op* op) noexcept nogil
cdef void forget_ahead(File* file) noexcept nogil
