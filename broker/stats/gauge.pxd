from libc.math cimport rint
from libc.stdint cimport int64_t

from broker.stats.ring cimport Ring

cdef enum:
    ROWS = 8                     # the rows of the rates' window, at one a second
    WIDTH_MAX = 16
    SIGNS = 4                    # figures beside the row that say that something changed


cdef inline double thousandths(double value) noexcept:
    """As a rate is shown. Lists are sorted by what they show: of rates that are shown alike, none
    comes before the others."""
    return rint(value * 1000) / 1000 + 0.0  # never -0.0


cdef class Gauge:
    cdef readonly str kind
    cdef readonly tuple names    # counters, then levels, in the order of a row
    cdef dict places
    cdef int width
    cdef int64_t times[ROWS]
    cdef double* rows            # ROWS of them, or one where nothing changes
    cdef int capacity
    cdef int first               # of the ring
    cdef int count
    cdef double signs[SIGNS]
    cdef bint active             # rates or the growth are not zero yet: look again at the next tick
    cdef readonly bint ended              # its last counts are taken
    cdef public int64_t acked_at
    cdef readonly int64_t changed_at
    cdef readonly int consumers
    cdef public int64_t oldest_unconfirmed
    cdef public int64_t unconfirmed_since
    cdef readonly double growth
    cdef readonly object history
    cdef Ring ring               # of the history
    cdef double* marks           # the row at the end of the last step of the long history
    cdef bint touched            # something changed since
    cdef int64_t noted_at        # the newest row of the history

    cdef double* row(self, int place) noexcept
    cdef int push(self, int64_t at, const double* row) except -1
    cdef int take(self, int64_t at, int64_t before, const double* row,
                  const double* signs) except -1
    cdef double rate_at(self, int place) noexcept
    cdef double shown_rate(self, int place) noexcept
    cdef void judge(self, int64_t at, bint waiting, int consumers, int acks, int rejects) noexcept
    cpdef void grow(self, int level) noexcept
    cdef bint still(self) noexcept
    cdef int settle_down(self) except -1
    cdef int mark(self, const double* row) except -1
    cdef bint rested(self, int64_t at, int64_t steps) noexcept
    cdef int note(self, int64_t at) except -1
