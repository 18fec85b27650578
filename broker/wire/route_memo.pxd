from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

cimport cython

from broker.kernel.contracts cimport Exchange


@cython.final
cdef class Route:
    cdef bytes method                    # exchange and routing key as basic.publish named them
    cdef Exchange exchange
    cdef tuple targets                   # None where the routing key alone does not decide


@cython.final
cdef class KnownRoutes:
    cdef uint64_t version                # of the topology
    cdef list routes                     # PLACES for each group, None where one is free
    cdef uint32_t* hashes                # of the routes, in the same order
    cdef Py_ssize_t groups               # a power of 2; 0: nothing is known
    cdef Py_ssize_t queues               # of all routes, each as often as it is in one
    cdef uint32_t turn                   # which place of a full group is replaced

    cdef Route find(self, uint64_t version, const uint8_t* method, uint32_t length)
    cdef Route keep(self, uint64_t version, bytes method, Exchange exchange, tuple targets)
    cdef int put(self, Route route, uint32_t hash) except -1
    cdef int grow(self) except -1
    cdef int clear(self) except -1


@cython.final
cdef class Taken:
    cdef uint64_t count                  # messages


@cython.final
cdef class RouteMemo:
    cdef Route route                     # of the last publish
    cdef const uint8_t* method           # its
    cdef uint32_t length
    cdef uint64_t version                # of the topology
    cdef uint64_t count                  # messages that took the route since it is remembered
    cdef dict flows                      # Route or (exchange, queues) -> Taken, before
    cdef Py_ssize_t held                 # queues of these, each as often as it is in one
    cdef Py_ssize_t merged_from          # this many of them on, flows are merged

    cdef int remember(self, Route route, uint64_t version) except -1
    cdef int note(self, route, uint64_t count) except -1
    cdef dict merged(self)
    cdef int merge(self) except -1
    cdef int end(self) except -1

    cdef inline bint is_known(self, uint64_t version, const uint8_t* method,
                              uint32_t length) noexcept:
        """Whether the last publish named the same exchange and routing key, and nothing has changed
        since."""
        return (self.version == version and self.length == length
                and memcmp(self.method, method, length) == 0)
