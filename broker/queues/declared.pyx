# cython: language_level=3
"""A queue as it was declared: what every type of queue has besides its messages."""

from libc.stdint cimport uint64_t

from broker.contracts cimport Queue
from broker.kernel cimport clock


cdef class DeclaredQueue(Queue):
    """The base of all types. `incarnation` is the number of this declaration, never used twice in a
    vhost; `owner` the connection of an exclusive queue."""

    def __init__(self, str vhost_name, str name, uint64_t incarnation, *, bint durable,
                 bint exclusive, bint auto_delete, arguments, owner, bounds):
        self.vhost_name = vhost_name
        self.name = name
        self.incarnation = incarnation
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self._arguments = arguments or None
        self.owner = owner
        self.bounds = bounds
        self.used_at = clock.now_ms

    cdef int sample(self, double* row, double* signs) except -1:
        """Fills a row of the statistics, which is zero, and four figures beside it that say that
        something else changed; the first is the number of consumers."""
        raise NotImplementedError

    def take_most(self) -> int:
        """The most messages it held since the last call of this; here what it holds now."""
        return self.messages_ready + self.messages_unacknowledged

    @property
    def arguments(self):
        return self._arguments or {}
