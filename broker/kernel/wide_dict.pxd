cdef class WideDict:
    cdef dict only               # all, while there are few; None later
    cdef list parts              # by the low bits of the hash; a part may have several places
    cdef list depths             # at each place: how many bits its part goes by
    cdef Py_ssize_t count
    cdef size_t popped           # the place that `popitem` took from last

    cdef dict part_of(self, key)
    cdef size_t place(self, key) except? 0
    cdef dict part_after(self, Py_ssize_t* at)
    cdef int shrink(self, dict part) except -1
    cdef int split(self, key) except -1


cdef class Values:
    cdef WideDict of
