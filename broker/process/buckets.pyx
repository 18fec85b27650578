# cython: language_level=3
"""How many lines a source may still write, for `log_limit`: asked for two lines of each connection
that comes and goes."""

from collections import OrderedDict


cdef class _Bucket:
    cdef double at                   # seconds, when it was looked at last
    cdef double left                 # lines

    cdef bint take(self, double now, double per_second, double burst_s) noexcept:
        self.left = min(per_second * burst_s, self.left + (now - self.at) * per_second)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


cdef _Bucket _full(double now, double lines):
    cdef _Bucket bucket = _Bucket()
    bucket.at = now
    bucket.left = lines
    return bucket


cdef class Buckets:
    """A source may write `per_second` lines, and those of `burst_s` seconds at once; all together
    `all_times` as many. `kept` sources are remembered, those that wrote lately."""

    cdef double _per_second
    cdef double _burst_s
    cdef double _all_times
    cdef Py_ssize_t _kept
    cdef _Bucket _all
    cdef object _of                  # OrderedDict: _Bucket by source

    def __init__(self, double now, double per_second, double burst_s, double all_times,
                 Py_ssize_t kept):
        self._per_second = per_second
        self._burst_s = burst_s
        self._all_times = all_times
        self._kept = kept
        self._all = _full(now, per_second * all_times * burst_s)
        self._of = OrderedDict()

    def __len__(self):
        """Sources that are remembered."""
        return len(self._of)

    cpdef bint take(self, source, double now) except -1:
        """Whether there is room for a line of this source at `now` (seconds, monotonic); if so, it
        is taken."""
        cdef _Bucket bucket = self._of.pop(source, None)
        if bucket is None:
            bucket = _full(now, self._per_second * self._burst_s)
        self._of[source] = bucket
        if len(self._of) > self._kept:
            self._of.popitem(last=False)
        return (bucket.take(now, self._per_second, self._burst_s)
                and self._all.take(now, self._per_second * self._all_times, self._burst_s))
