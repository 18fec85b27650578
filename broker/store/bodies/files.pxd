from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.store.bodies.file cimport BodyFile


cdef class BodyFiles:
    cdef dict by_number                  # number of the first -> BodyFile
    cdef void* first                     # neighbours are linked, the table keeps them
    cdef void* last
    cdef readonly uint64_t size          # bytes of all files
    cdef readonly uint64_t valid         # bytes of records with references
    cdef object half_dead                # deque of files that were half dead when they came to it

    cdef BodyFile get(self, uint32_t number)
    cdef int add(self, BodyFile file) except -1
    cdef int remove(self, BodyFile file) except -1
    cdef void grew(self, BodyFile file, uint64_t size) noexcept
    cdef void lives(self, BodyFile file, uint64_t size) noexcept
    cdef int died(self, BodyFile file, uint64_t size) except -1
    cdef int look(self, BodyFile file) except -1
    cdef int64_t widen(self, list run, uint64_t limit, double now, int* looks) except -1
