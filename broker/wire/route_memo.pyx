# cython: language_level=3
"""Routes that were looked up: those of a connection's publishes, and of a channel the last one,
which the next publish mostly takes, too; and how many messages took each."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from broker.kernel.checksum cimport crc32c_of
from broker.kernel.contracts cimport Exchange

cdef enum:
    FLOWS_MAX = 1024             # routes of a channel whose messages are counted
    HELD_MAX = 8192              # queues of flows that are not merged
    PLACES = 8                   # of a group
    GROUPS_MAX = 512             # 4,096 routes of a connection: 0.8 MB
    QUEUES_MAX = 131_072         # of all routes of a connection: 1 MiB


cdef class Route:
    """Where messages with this exchange and routing key go."""


cdef class KnownRoutes:
    """The routes that a connection looked up last, for one version of the topology.

    A hash of what basic.publish names chooses a group of places. Where that is full, all groups are
    doubled; there is a most, and then a new route takes the place of another. So a search compares
    a few hashes, whatever keys a client chooses.
    """

    def __dealloc__(self):
        free(self.hashes)

    cdef Route find(self, uint64_t version, const uint8_t* method, uint32_t length):
        """None if it is not known."""
        cdef uint32_t hash
        cdef Py_ssize_t place, first
        cdef Route route
        if self.version != version or self.groups == 0:
            return None
        hash = crc32c_of(0, method, length)
        first = (<Py_ssize_t> hash & (self.groups - 1)) * PLACES
        for place in range(first, first + PLACES):
            if self.hashes[place] != hash or self.routes[place] is None:
                continue
            route = <Route> self.routes[place]
            if (PyBytes_GET_SIZE(route.method) == <Py_ssize_t> length
                    and memcmp(PyBytes_AS_STRING(route.method), method, length) == 0):
                return route
        return None

    cdef Route keep(self, uint64_t version, bytes method, Exchange exchange, tuple targets):
        """This was the route when the topology had that version."""
        cdef Route route = Route.__new__(Route)
        cdef uint32_t hash = crc32c_of(
            0, <const uint8_t*> PyBytes_AS_STRING(method), <size_t> PyBytes_GET_SIZE(method))
        route.method = method
        route.exchange = exchange
        route.targets = targets
        if self.version != version or self.queues >= QUEUES_MAX:
            self.clear()
            self.version = version
        if self.groups == 0:
            self.grow()
        self.put(route, hash)
        return route

    cdef int put(self, Route route, uint32_t hash) except -1:
        cdef Py_ssize_t place, first
        cdef Route old
        while True:
            first = (<Py_ssize_t> hash & (self.groups - 1)) * PLACES
            for place in range(first, first + PLACES):
                if self.routes[place] is None:
                    break
            else:
                if self.groups < GROUPS_MAX:
                    self.grow()
                    continue
                self.turn += 1
                place = first + self.turn % PLACES
                old = <Route> self.routes[place]
                self.queues -= len(old.targets) if old.targets is not None else 0
            break
        self.hashes[place] = hash
        self.routes[place] = route
        self.queues += len(route.targets) if route.targets is not None else 0
        return 0

    cdef int grow(self) except -1:
        """Twice as many groups. Raises MemoryError, and nothing has changed."""
        cdef Py_ssize_t groups = max(1, 2 * self.groups)
        cdef uint32_t* hashes = self.hashes
        cdef list routes = self.routes
        cdef list room = [None] * (groups * PLACES)
        cdef uint32_t* more = <uint32_t*> calloc(<size_t> (groups * PLACES), sizeof(uint32_t))
        cdef Py_ssize_t place
        if more == NULL:
            raise MemoryError("no memory for the routes of a connection")
        self.hashes = more
        self.routes = room
        self.groups = groups
        self.queues = 0
        if routes is not None:
            for place in range(len(routes)):
                if routes[place] is not None:
                    self.put(<Route> routes[place], hashes[place])
        free(hashes)
        return 0

    cdef int clear(self) except -1:
        """Forgets all: queues may go."""
        free(self.hashes)
        self.hashes = NULL
        self.routes = None
        self.groups = 0
        self.queues = 0
        return 0


cdef class Taken:
    """How many messages of a channel took a route."""


cdef Py_ssize_t queues_of(route) except -1:
    """Of a `Route` or `(exchange, queues)`."""
    cdef tuple targets = (<Route> route).targets if isinstance(route, Route) else route[1]
    return len(targets) if targets is not None else 0


cdef class RouteMemo:
    """One channel's."""

    def __init__(self):
        self.flows = {}
        self.merged_from = HELD_MAX

    cdef int remember(self, Route route, uint64_t version) except -1:
        """From now on this is the route of publishes that name what it was looked up for."""
        self.note(self.route, self.count)
        self.count = 0
        self.route = route
        self.method = <const uint8_t*> PyBytes_AS_STRING(route.method)
        self.length = <uint32_t> PyBytes_GET_SIZE(route.method)
        self.version = version
        return 0

    cdef int note(self, route, uint64_t count) except -1:
        """Counts messages that took a route, which is a `Route` or `(exchange, queues)`."""
        cdef Taken taken
        if count == 0:
            return 0
        found = self.flows.get(route)
        if found is None:
            # Each version of the topology has routes of its own, and many may lead the same way.
            self.held += queues_of(route)
            if len(self.flows) >= 2 * FLOWS_MAX or self.held > self.merged_from:
                self.merge()
            found = self.flows[route] = Taken.__new__(Taken)
        taken = <Taken> found
        taken.count += count
        return 0

    cdef dict merged(self):
        """The flows by `(exchange, queues)`."""
        cdef Route route
        cdef Taken all_taken
        cdef dict found = {}
        for each, taken in self.flows.items():
            if isinstance(each, Route):
                route = <Route> each
                each = (route.exchange, route.targets)
            there = found.get(each)
            if there is None:
                there = found[each] = Taken.__new__(Taken)
            all_taken = <Taken> there
            all_taken.count += (<Taken> taken).count
        return found

    cdef int merge(self) except -1:
        """Leaves at most FLOWS_MAX flows. Of more, the first ones are forgotten: a publisher to
        ever new queues must not hold them all."""
        cdef Py_ssize_t too_many
        self.flows = self.merged()
        too_many = len(self.flows) - FLOWS_MAX
        if too_many > 0:
            for old in list(self.flows)[:too_many]:
                del self.flows[old]
        self.held = 0
        for each in self.flows:
            self.held += queues_of(each)
        # What is left cannot be merged: not for each new route.
        self.merged_from = max(HELD_MAX, 2 * self.held)
        return 0

    def counts(self) -> dict:
        """How many messages took each route, `(exchange, queues)`. Of a channel that publishes to
        very many, the routes of lately."""
        self.note(self.route, self.count)
        self.count = 0
        return {each: (<Taken> taken).count for each, taken in self.merged().items()}

    cdef int end(self) except -1:
        """The channel has ended: exchange and queues may go."""
        self.version = 0
        self.length = 0
        self.method = NULL
        self.route = None
        self.count = 0
        self.flows = {}
        self.held = 0
        return 0
