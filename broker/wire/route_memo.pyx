# cython: language_level=3
"""The route of a channel's last publish, which the next one mostly takes, too; and how many
messages took each route."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer

cdef enum:
    FLOWS_MAX = 1024             # routes of a channel whose messages are counted


cdef class RouteMemo:
    """One channel's. A route is `(exchange, queues)`."""

    def __init__(self):
        self.method = Buffer()
        self.flows = {}

    cdef int remember(self, tuple route, uint64_t version, const uint8_t* method,
                      uint32_t length) except -1:
        """From now on this is the route of publishes that name what `method` names."""
        self.note(self.route, self.count)
        self.count = 0
        self.route = route
        self.exchange, self.targets = route
        self.method.length = 0
        self.method.add(method, length)
        self.version = version
        return 0

    cdef int note(self, tuple route, uint64_t count) except -1:
        """Counts messages that took a route."""
        if count == 0:
            return 0
        if route not in self.flows and len(self.flows) >= FLOWS_MAX:
            # A publisher to ever new queues must not hold them all.
            for old in list(self.flows)[:FLOWS_MAX // 2]:
                del self.flows[old]
        self.flows[route] = self.flows.get(route, 0) + count
        return 0

    def counts(self) -> dict:
        """How many messages took each route. Of a channel that publishes to very many, the routes
        of lately."""
        self.note(self.route, self.count)
        self.count = 0
        return self.flows

    cdef int end(self) except -1:
        """The channel has ended: exchange and queues may go."""
        self.method.release()
        self.version = 0
        self.exchange = None
        self.targets = None
        self.route = None
        self.count = 0
        self.flows = {}
        return 0
