cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Exchange


cdef class RouteMemo:
    cdef Buffer method                   # exchange and routing key as basic.publish named them
    cdef uint64_t version                # of the topology
    cdef Exchange exchange
    cdef tuple targets                   # None where the routing key alone does not decide
    cdef tuple route                     # both together, as they were looked up
    cdef uint64_t count                  # messages that took the route since it is remembered
    cdef dict flows                      # route -> messages that took it before

    cdef int remember(self, tuple route, uint64_t version, const uint8_t* method,
                      uint32_t length) except -1
    cdef int note(self, tuple route, uint64_t count) except -1
    cdef int end(self) except -1

    @cython.final
    cdef inline bint is_known(self, uint64_t version, const uint8_t* method,
                              uint32_t length) noexcept:
        """Whether the last publish named the same exchange and routing key, and nothing has changed
        since."""
        return (self.version == version and self.method.length == length
                and memcmp(self.method.data, method, length) == 0)
