# cython: language_level=3
"""When connections, channels and consumers come and go, and what was made of their list since.

Lists of 10,000 channels are asked for again and again while few of them change: their order and
their names are kept by `broker.server.control.rosters` until the next change, and dropped with it,
so that nothing of a client outlives its connection.
"""


cdef class Clients:
    """`version` rises with each connection, channel and consumer that comes or goes. `kept` is what
    was made since the last change, by what was wanted."""

    def __cinit__(self):
        self.version = 1
        self.kept = {}

    cpdef void changed(self) noexcept:
        """A connection, a channel or a consumer came or went."""
        self.version += 1
        if self.kept:
            self.kept.clear()
