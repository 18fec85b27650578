# cython: language_level=3
"""All things that are there now, gone through in steps, however many come and go meanwhile.

A list of them would be looked at by Python's garbage collector, three times while it is young: each
time 9 ms for 250,000 queues, of whichever turn has the bad luck. And the last one to let go of many
that were deleted meanwhile would free them all at once, another 20 ms.
"""

from cpython.list cimport PyList_GET_SIZE
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef extern from "Python.h":
    ctypedef struct PyListObject:
        PyObject** ob_item
    void Py_SET_SIZE(object found, Py_ssize_t size)


cdef class Through:
    """An iterator over the items that `things` has at the beginning. `piece(most)` returns the next
    `most` as a list, which is empty at the end. Returned items are not kept."""

    cdef PyObject** things
    cdef Py_ssize_t count
    cdef Py_ssize_t at

    def __cinit__(self, things):
        cdef list found = list(things)
        cdef Py_ssize_t count = PyList_GET_SIZE(found)
        self.things = <PyObject**> malloc(max(1, count) * sizeof(PyObject*))
        if self.things == NULL:
            raise MemoryError
        if count:
            # The list's own references are taken over: counting each thing twice more, in memory
            # that no cache has, would take as long as making the list.
            memcpy(self.things, (<PyListObject*> found).ob_item, count * sizeof(PyObject*))
            Py_SET_SIZE(found, 0)
        self.count = count

    def __dealloc__(self):
        while self.at < self.count:
            self.at += 1
            Py_DECREF(<object> self.things[self.at - 1])
        free(self.things)

    def __len__(self):
        """How many are left."""
        return self.count - self.at

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == self.count:
            raise StopIteration
        return self.next()

    cdef next(self):
        thing = <object> self.things[self.at]
        self.at += 1
        Py_DECREF(thing)
        return thing

    def piece(self, Py_ssize_t most) -> list:
        cdef list found = []
        while len(found) < most and self.at < self.count:
            found.append(self.next())
        return found
