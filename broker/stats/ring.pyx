# cython: language_level=3
"""Rows of numbers over time, the newest steps of them. Python's garbage collector has one
object to walk over for each, and a row costs a copy."""

from array import array

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef enum:
    ROOM = 8                     # steps, at first


cdef class Ring:
    """The last `size` steps of `step` ms each, of rows of `width` values. A step holds the last row
    that was added within it. Times are ms since 1970, and must not go back."""

    def __cinit__(self, int width, int64_t step, int size):
        self.width = width
        self.step = step
        self.size = size

    def __dealloc__(self):
        free(self.times)
        free(self.rows)

    def __len__(self):
        return self.count

    cdef int put(self, int64_t at, const double* row) except -1:
        cdef int newest
        if self.count:
            newest = (self.start + self.count - 1) % self.count
            if at // self.step <= self.times[newest] // self.step:
                self.times[newest] = max(at, self.times[newest])
                memcpy(self.rows + newest * self.width, row, self.width * sizeof(double))
                return 0
        return self.append(at, row)

    cdef int repeat(self, int64_t begin, int64_t end, const double* row) except -1:
        """Adds the row to each step from that of `begin` to the one before that of `end`; all of
        them lie behind the newest step."""
        cdef int64_t steps = end // self.step - begin // self.step
        cdef int64_t number
        for number in range(max(0, steps - self.size), steps):
            self.append(begin + number * self.step, row)
        return 0

    cdef int append(self, int64_t at, const double* row) except -1:
        cdef int place
        if self.count < self.size:
            if self.count == self.room:
                self.grow()
            place = self.count
            self.count += 1
        else:
            place = self.start
            self.start = (self.start + 1) % self.size
        self.times[place] = at
        memcpy(self.rows + place * self.width, row, self.width * sizeof(double))
        return 0

    cdef int grow(self) except -1:
        """Makes room. Raises MemoryError, and the ring is as it was."""
        cdef int room = min(self.size, max(ROOM, 2 * self.room))
        cdef int64_t* times = <int64_t*> realloc(self.times, room * sizeof(int64_t))
        cdef double* rows
        if times != NULL:
            self.times = times
        rows = <double*> realloc(self.rows, <size_t> room * self.width * sizeof(double))
        if rows != NULL:
            self.rows = rows
        if times == NULL or rows == NULL:
            raise MemoryError("no memory for the history of an object")
        self.room = room
        return 0

    def add(self, at, values):
        """Adds a row. Raises ValueError if it is not as wide as the others."""
        cdef double* row
        cdef int place
        if len(values) != self.width:
            raise ValueError(f"a row of {len(values)} values where {self.width} are kept")
        row = <double*> malloc(max(1, self.width) * sizeof(double))
        if row == NULL:
            raise MemoryError("no memory for a row")
        try:
            for place in range(self.width):
                row[place] = values[place]
            self.put(at, row)
        finally:
            free(row)

    @property
    def first(self) -> int:
        """The oldest time; 0 without any."""
        return self.times[self.start] if self.count else 0

    def times_in_order(self):
        """Of all steps, the oldest first."""
        cdef int place
        return array("q", [
            self.times[(self.start + place) % self.count] for place in range(self.count)])

    def column(self, int which):
        """One value of each step, the oldest first."""
        cdef int place
        if not 0 <= which < self.width:
            raise IndexError(which)
        return array("d", [
            self.rows[(self.start + place) % self.count * self.width + which]
            for place in range(self.count)])
