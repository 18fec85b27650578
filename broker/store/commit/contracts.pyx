# cython: language_level=3
"""What the persister asks of those who write: the stores of queues, streams, shared bodies and
others."""

from broker.store.files.io_thread cimport Round


cdef class Dirty:
    """A store with unwritten data, as that of a queue."""

    cdef int take_up(self) except -1:
        """A round begins, and what is `behind` others is frozen in its last part: that writes what
        there is now, since the others may write later things only in the next round."""
        return 0

    cdef int freeze(self, Round* round) except -1:
        """Adds the operations that write everything unwritten; what they point to stays unchanged
        until `written`."""
        raise NotImplementedError

    cdef int written(self, Round* round) except -1:
        """The round of the last `freeze` is over."""
        raise NotImplementedError

    cdef int read_done(self, Round* round) except -1:
        """A round given to `Persister.read` is over."""
        raise NotImplementedError

    cdef int retry(self) except -1:
        """A round is over: whatever had to wait for files in flight can be tried again."""
        raise NotImplementedError

    cdef bint background(self) except? True:
        """All data written so far is synced: deferred work may be done. Returns whether to be
        called again after the next such round."""
        raise NotImplementedError

    cdef int background_done(self, Round* round) except -1:
        """A round given to `Background.remove_for` is over."""
        raise NotImplementedError
