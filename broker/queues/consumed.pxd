from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.contracts cimport Consumer
from broker.queues.capacity cimport Capacity
from broker.queues.stored cimport StoredQueue


cdef class ConsumedQueue(StoredQueue):
    cdef list _consumers                 # highest priority first; equals in the order they came
    cdef Capacity capacity               # None until no consumer had room for a message
    cdef list expected                   # consumers that have not got basic.consume-ok yet, or None
    cdef bint is_joined                  # consumers came since it delivered last
    cdef uint64_t ready_joined           # messages that were ready then, which they share

    cdef bint serve_consumers(self) except -1
    cdef bint is_served(self) noexcept
    cdef uint64_t consumers_room(self) noexcept
    cdef Consumer next_consumer(self)
    cdef bint has_room(self) noexcept
    cdef int note_turn(self, uint32_t count) except -1
    cdef int note_capacity(self, bint served, bint blocked) except -1
    cdef bint stop_expecting(self, Consumer consumer) except -1
    cdef int hand_turn_on(self, Py_ssize_t at) except -1
