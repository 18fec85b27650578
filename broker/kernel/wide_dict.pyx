# cython: language_level=3
"""A dict for any number of entries that is never moved as a whole.

A dict of a million entries takes 20 ms when it grows. Here entries lie in parts by their hash
(extendible hashing): a part that is full is split, which takes a millisecond, and one that is empty
gives its memory back. Up to `PART` entries it is one dict, in order of insertion; a larger one has
no order.

Python's garbage collector does not walk over the parts of a larger one: it counts new objects, and
each new part is one with a thousand entries, so that the walks of a growing dict took 11 ms of one
turn. A circle of references that leads through such a part is not found.
"""

import os

from cpython.dict cimport PyDict_Contains
from cpython.object cimport PyObject_Hash

from libc.stdint cimport uint64_t

from broker.kernel.mixing cimport mixed

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object op)

cdef enum:
    PART = 2048
    # Entries for each place of `parts`, on average. Keys of one hash stay in one part, however
    # often it is split: such a part grows instead.
    PER_PLACE = 128

# The hash of a number is known: without this a client could choose numbers that stay in one part.
cdef uint64_t secret = int.from_bytes(os.urandom(8), "little")


cdef class WideDict:
    """Maps as a dict does. Not to be changed while it is iterated over."""

    def __init__(self, dict first=None):
        """`first` becomes the first part: no other code may change it."""
        self.only = first if first is not None else {}
        self.count = len(self.only)

    cdef size_t place(self, key) except? 0:
        cdef uint64_t hash = mixed(<uint64_t> PyObject_Hash(key) ^ secret)
        return <size_t> (hash & <uint64_t> (len(self.parts) - 1))

    cdef dict part_of(self, key):
        if self.only is not None:
            return self.only
        return <dict> self.parts[self.place(key)]

    def __len__(self):
        return self.count

    def __contains__(self, key):
        return PyDict_Contains(self.part_of(key), key) == 1

    def __getitem__(self, key):
        return self.part_of(key)[key]

    def get(self, key, default=None):
        return self.part_of(key).get(key, default)

    def __setitem__(self, key, value):
        cdef dict part = self.part_of(key)
        cdef Py_ssize_t before = len(part)
        while before >= PART and key not in part:
            self.split(key)
            part = <dict> self.parts[self.place(key)]
            if len(part) == before:
                break             # all have one hash
            before = len(part)
        before = len(part)
        part[key] = value
        self.count += len(part) - before
        if part is not self.only:
            PyObject_GC_UnTrack(part)     # a dict tracks itself again with each new value

    def __delitem__(self, key):
        cdef dict part = self.part_of(key)
        del part[key]
        self.count -= 1
        self.shrink(part)

    def pop(self, key, *default):
        cdef dict part = self.part_of(key)
        cdef Py_ssize_t before = len(part)
        found = part.pop(key, *default)
        if len(part) != before:
            self.count -= 1
            self.shrink(part)
        return found

    def popitem(self):
        cdef dict part
        if self.only is not None:
            item = self.only.popitem()
            self.count -= 1
            self.shrink(self.only)
            return item
        # Never without an entry: it would be one dict.
        while True:
            part = <dict> self.parts[self.popped % <size_t> len(self.parts)]
            if part:
                item = part.popitem()
                self.count -= 1
                self.shrink(part)
                return item
            self.popped += 1

    def update(self, other):
        for key, value in other.items():
            self[key] = value

    def clear(self):
        self.only = {}
        self.parts = self.depths = None
        self.count = 0

    def __iter__(self):
        if self.only is not None:
            return iter(self.only)
        return (key for part in self.each_part() for key in part)

    def keys(self):
        return iter(self)

    def values(self):
        return Values(self)

    def items(self):
        if self.only is not None:
            return self.only.items()
        return (item for part in self.each_part() for item in part.items())

    def each_part(self):
        """Every part once, as a list."""
        if self.only is not None:
            return [self.only]
        return [part for at, part in enumerate(self.parts) if at < 1 << <int> self.depths[at]]

    cdef dict part_after(self, Py_ssize_t* at):
        """The part at a place, which becomes the place of the next one, or -1. Going so from 0 on
        gives each entry that stays once, however many parts are split meanwhile: places go by their
        bits from the lowest on, as splitting does."""
        cdef Py_ssize_t bit
        cdef Py_ssize_t place = at[0]
        if self.only is not None or place >= len(self.parts):
            at[0] = -1
            return self.only if self.only is not None else {}
        bit = (<Py_ssize_t> 1) << <int> self.depths[place] >> 1
        at[0] = place
        while at[0] & bit:
            at[0] ^= bit
            bit >>= 1
        at[0] = at[0] | bit if bit else -1
        return <dict> self.parts[place]

    cdef int shrink(self, dict part) except -1:
        """An entry was taken from this part."""
        if not part:
            # A dict keeps the room of its largest size until it is cleared.
            part.clear()
            if self.count == 0 and self.only is None:
                self.clear()
        return 0

    cdef int split(self, key) except -1:
        """Makes two of the part that the key belongs to."""
        cdef dict part
        cdef dict even = {}
        cdef dict odd = {}
        cdef size_t at
        cdef int depth
        if self.only is not None:
            self.parts = [self.only]
            self.depths = [0]
            self.only = None
        at = self.place(key)
        part = <dict> self.parts[at]
        depth = <int> self.depths[at]
        if (<Py_ssize_t> 1) << depth == len(self.parts):
            if len(self.parts) * PER_PLACE > self.count:
                return 0
            self.parts += self.parts
            self.depths += self.depths
        for each, value in part.items():
            if mixed(<uint64_t> PyObject_Hash(each) ^ secret) >> depth & 1:
                odd[each] = value
            else:
                even[each] = value
        PyObject_GC_UnTrack(odd)
        PyObject_GC_UnTrack(even)
        at &= ((<size_t> 1) << depth) - 1
        while at < <size_t> len(self.parts):
            self.parts[at] = odd if at >> depth & 1 else even
            self.depths[at] = depth + 1
            at += (<size_t> 1) << depth
        return 0


cdef class Values:
    """The values of a `WideDict`, which is not to be changed while one iterates over them.
    `Through` goes through those of one that is."""

    def __init__(self, WideDict of):
        self.of = of

    def __len__(self):
        return self.of.count

    def __iter__(self):
        if self.of.only is not None:
            return iter(self.of.only.values())
        return (value for part in self.of.each_part() for value in part.values())
