# cython: language_level=3
"""All things that are there now, gone through in steps, however many come and go meanwhile.

A list of them would be looked at by Python's garbage collector, three times while it is young: each
time 9 ms for 250,000 queues, of whichever turn has the bad luck. And the last one to let go of many
that were deleted meanwhile would free them all at once, another 20 ms.

The values of a large `WideDict` are taken part by part, each when its turn comes: to refer to
250,000 queues at once takes up to 15 ms, because each lies elsewhere in memory.
"""

cimport cython
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_SIZE, PyList_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from broker.kernel.fetching cimport fetch_line
from broker.kernel.wide_dict cimport Values, WideDict

cdef extern from "Python.h":
    ctypedef struct PyListObject:
        PyObject** ob_item
    void Py_SET_SIZE(object found, Py_ssize_t size)
    void PyObject_GC_UnTrack(object op)


cpdef list long_list():
    """An empty list for very many things, into which the garbage collector does not look: a walk
    over 200,000 things that lie elsewhere in memory each takes 40 ms of one turn. It must not refer
    to what refers to it."""
    cdef list found = []
    PyObject_GC_UnTrack(found)
    return found


@cython.no_gc
cdef class Through:
    """An iterator over the items that `things` has at the beginning. `piece(most)` returns the next
    `most` as a list, which is empty at the end. Returned items are not kept. Of the values of a
    `WideDict` those that are deleted before their turn are not returned, and some of those that
    come meanwhile are."""

    cdef PyObject** things
    cdef Py_ssize_t count
    cdef Py_ssize_t at
    cdef WideDict of             # what `things` is a part of
    cdef Py_ssize_t place        # of its next part; -1: there is none
    cdef Py_ssize_t later        # about how many the next parts have

    def __cinit__(self, things):
        self.place = -1
        if isinstance(things, Values):
            self.of = (<Values> things).of
            self.place = 0
            self.later = self.of.count
            self.load()
        else:
            self.take(list(things))

    cdef int make_room(self, Py_ssize_t count) except -1:
        """For this number of things, in the place of those that are all gone."""
        free(self.things)
        self.at = self.count = 0
        self.things = <PyObject**> malloc(max(1, count) * sizeof(PyObject*))
        if self.things == NULL:
            raise MemoryError
        return 0

    cdef int take(self, list found) except -1:
        cdef Py_ssize_t count = PyList_GET_SIZE(found)
        self.make_room(count)
        if count:
            # The list's own references are taken over: counting each thing twice more, in memory
            # that no cache has, would take as long as making the list.
            memcpy(self.things, (<PyListObject*> found).ob_item, count * sizeof(PyObject*))
            Py_SET_SIZE(found, 0)
        self.count = count
        return 0

    cdef int take_values(self, dict part) except -1:
        """`take` for the values of a dict. Each is fetched into the processor's cache before it is
        referred to."""
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t place = 0
        cdef PyObject* value
        self.make_room(len(part))
        while PyDict_Next(part, &at, NULL, &value):
            self.things[place] = value
            fetch_line(value)
            place += 1
        for at in range(place):
            Py_INCREF(<object> self.things[at])
        self.count = place
        return 0

    cdef int load(self) except -1:
        """Takes the next part that has something, if there is one."""
        while self.at == self.count and self.place >= 0:
            self.take_values(self.of.part_after(&self.place))
            self.later = max(1, self.later - self.count) if self.place >= 0 else 0
        return 0

    def __dealloc__(self):
        while self.at < self.count:
            self.at += 1
            Py_DECREF(<object> self.things[self.at - 1])
        free(self.things)

    def __len__(self):
        """How many are left; of a `WideDict` about as many, but 0 only at the end."""
        return self.count - self.at + self.later

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
        if self.at == self.count and self.place >= 0:
            self.load()
        return thing

    def piece(self, Py_ssize_t most) -> list:
        cdef list found = []
        cdef list some
        cdef Py_ssize_t place, count
        while len(found) < most and self.at < self.count:
            count = min(most - len(found), self.count - self.at)
            some = PyList_New(count)
            for place in range(count):
                # The list takes the reference over.
                (<PyListObject*> some).ob_item[place] = self.things[self.at + place]
            self.at += count
            found = found + some if found else some
            if self.at == self.count and self.place >= 0:
                self.load()
        return found
