# cython: language_level=3
"""Very many objects, each once, in the order in which they came: the queues that a message reaches.

A tuple of 100,000 queues takes 6 ms when it is made and again when it is given up, because each
lies elsewhere in memory; and as long for each walk of Python's garbage collector while it is young.
They are found, and let go of, in steps, and no walk looks at them here.
"""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, realloc

cdef enum:
    COMPARED = 8                 # up to this number they are compared one by one
    IN_TUPLE = 8192              # up to this number they become a tuple, in half a millisecond
    MOVED_AT_ONCE = 8            # to a larger table, with each one that is added


cpdef bint is_wide(found):
    """Whether these are very many queues, or the steps that find as many. None is not."""
    return found is not None and (
        type(found) is not tuple or PyTuple_GET_SIZE(found) > QUEUES_AT_ONCE)


@cython.final
@cython.no_gc
cdef class Reached:
    """Things by their identity, in a table of twice as many places and more. A table that grows is
    filled from the one before as things are added: 65,000 at once take 4 ms."""

    def __dealloc__(self):
        self.let_go(self.count)
        free(self.things)
        free(self.places)
        free(self.old_places)

    def __len__(self):
        return self.count

    def __iter__(self):
        cdef Py_ssize_t at
        for at in range(self.gone, self.count):
            yield <object> self.things[at]

    def __contains__(self, thing):
        return self.has(<PyObject*> thing)

    def let_some_go(self, Py_ssize_t most) -> bool:
        """Refers no more to the next ones. Whether any are left. None is added or asked for after
        that."""
        self.let_go(min(self.count, self.gone + most))
        return self.gone < self.count

    cpdef bint add(self, thing) except? True:
        """Whether it was not here."""
        cdef PyObject* address = <PyObject*> thing
        cdef PyObject** grown
        cdef Py_ssize_t wanted
        if self.has(address):
            return False
        if self.count == self.capacity:
            wanted = max(4, 2 * self.capacity)
            grown = <PyObject**> realloc(self.things, wanted * sizeof(PyObject*))
            if grown == NULL:
                raise MemoryError("no memory for the queues of a message")
            self.things = grown
            self.capacity = wanted
        if self.old_places != NULL:
            self.move_some(MOVED_AT_ONCE)
        if self.count >= COMPARED and <size_t> self.count * 2 >= self.mask:
            self.make_places(32 if self.places == NULL else (self.mask + 1) * 2)
        Py_INCREF(thing)
        self.things[self.count] = address
        self.count += 1
        if self.places != NULL:
            self.enter(address)
        return True

    def found(self):
        """As a tuple, unless they are very many."""
        return self if self.count > IN_TUPLE else tuple(self)

    cdef int make_places(self, size_t size) except -1:
        cdef PyObject** places = <PyObject**> calloc(size, sizeof(PyObject*))
        if places == NULL:
            raise MemoryError("no memory for the queues of a message")
        # All are moved by now: a table has places for as many again as it began with.
        self.old_places, self.old_mask = self.places, self.mask
        self.places = places
        self.mask = size - 1
        self.moved, self.to_move = 0, self.count
        if self.old_places == NULL:
            self.move_some(self.count)
        return 0

    cdef void move_some(self, Py_ssize_t most) noexcept:
        """Enters the next ones of the old table into the new one."""
        cdef Py_ssize_t end = min(self.to_move, self.moved + most)
        while self.moved < end:
            self.enter(self.things[self.moved])
            self.moved += 1
        if self.moved == self.to_move:
            free(self.old_places)
            self.old_places = NULL

    cdef void enter(self, PyObject* thing) noexcept:
        cdef size_t at = place_of(thing) & self.mask
        while self.places[at] != NULL:
            at = (at + 1) & self.mask
        self.places[at] = thing

    cdef bint has(self, PyObject* thing) noexcept:
        cdef Py_ssize_t i
        if self.places == NULL:
            for i in range(self.count):
                if self.things[i] == thing:
                    return True
            return False
        if is_in(self.places, self.mask, thing):
            return True
        return self.old_places != NULL and is_in(self.old_places, self.old_mask, thing)

    cdef void let_go(self, Py_ssize_t until) noexcept:
        """Refers no more to those before this place. None is added after that."""
        while self.gone < until:
            self.gone += 1
            Py_DECREF(<object> self.things[self.gone - 1])


cdef inline size_t place_of(PyObject* thing) noexcept:
    # Objects lie at multiples of 16.
    return <size_t> ((<uint64_t> thing >> 4) * <uint64_t> 0x9E3779B97F4A7C15 >> 24)


cdef bint is_in(PyObject** places, size_t mask, PyObject* thing) noexcept:
    cdef size_t at = place_of(thing) & mask
    while places[at] != NULL:
        if places[at] == thing:
            return True
        at = (at + 1) & mask
    return False
