# cython: language_level=3
"""The largest of many numbers that are added and removed.

Clients choose the order of additions and removals: a scan of all numbers at each removal of the
largest would take 50 ms for a client with a million of them.
"""

from libc.stdint cimport int64_t

cdef enum:
    # A look takes as many steps as there are groups, and as a group may have different numbers: 900
    # for numbers up to 200,000, the default of `topic_visits_max`.
    GROUP_BITS = 9


cdef class Largest:
    """Numbers, each as often as it was added; `most` is the largest, 0 if there is none above it.
    Zeros are not kept."""

    def __cinit__(self):
        self.counts = {}
        self.groups = {}

    cpdef int add(self, int64_t number) except -1:
        if number == 0:
            return 0
        count = self.counts.get(number)
        if count is None:
            self.counts[number] = 1
            group = number >> GROUP_BITS
            self.groups[group] = self.groups.get(group, 0) + 1
            if number > self.most:
                self.most = number
        else:
            self.counts[number] = count + 1
        return 0

    cpdef int remove(self, int64_t number) except -1:
        """Raises KeyError if it is not there."""
        if number == 0:
            return 0
        count = self.counts[number]
        if count > 1:
            self.counts[number] = count - 1
            return 0
        del self.counts[number]
        group = number >> GROUP_BITS
        if self.groups[group] > 1:
            self.groups[group] -= 1
        else:
            del self.groups[group]
        if number == self.most:
            self.most = self.found()
        return 0

    cdef int64_t found(self):
        """The largest, by a look at the groups and at the numbers of one of them."""
        cdef int64_t number
        if not self.groups:
            return 0
        group = max(self.groups)
        number = ((<int64_t> group + 1) << GROUP_BITS) - 1
        while number not in self.counts:
            number -= 1
        return number
