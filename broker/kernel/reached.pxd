cimport cython
from cpython.ref cimport PyObject


# More queues than this do not get a message at once. One may have to make its store first, which
# takes up to 9 microseconds.
cdef enum:
    QUEUES_AT_ONCE = 512


cpdef bint is_wide(found)


@cython.final
cdef class Reached:
    cdef PyObject** things       # with a reference to each that is not let go
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef Py_ssize_t gone         # how many of the first ones are let go
    cdef PyObject** places       # the same by their addresses, once they are many
    cdef size_t mask
    cdef PyObject** old_places   # the table before, while some of it is not in the new one yet
    cdef size_t old_mask
    cdef Py_ssize_t moved        # how many are in the new one,
    cdef Py_ssize_t to_move      # of this number

    cpdef bint add(self, thing) except? True
    cdef int make_places(self, size_t size) except -1
    cdef void move_some(self, Py_ssize_t most) noexcept
    cdef void enter(self, PyObject* thing) noexcept
    cdef bint has(self, PyObject* thing) noexcept
    cdef void let_go(self, Py_ssize_t until) noexcept
