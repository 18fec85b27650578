from libc.stdint cimport int64_t


cdef class Ring:
    cdef readonly int64_t step           # ms
    cdef readonly int size
    cdef readonly int width
    cdef int64_t* times
    cdef double* rows
    cdef int count
    cdef int room                        # steps that there is memory for
    cdef int start                       # the oldest step, once the ring is full

    cdef int put(self, int64_t at, const double* row) except -1
    cdef int repeat(self, int64_t begin, int64_t end, const double* row) except -1
    cdef int append(self, int64_t at, const double* row) except -1
    cdef int grow(self) except -1
