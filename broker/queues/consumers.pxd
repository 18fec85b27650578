from libc.stdint cimport uint64_t

from broker.kernel.contracts cimport Consumer
from broker.queues.capacity cimport Capacity


cdef class Consumers:
    cdef list all                        # highest priority first; equals in the order they came
    cdef list expected                   # those that have not got basic.consume-ok yet, or None
    cdef bint single_active              # only the first one is served
    cdef Capacity capacity               # None until no consumer had room for a message
    cdef bint is_joined                  # some came since the queue delivered last
    cdef uint64_t ready_joined           # messages that were ready then, which they share

    cdef Py_ssize_t count(self) noexcept
    cdef Consumer next(self)
    cdef bint have_room(self) noexcept
    cdef bint could_take(self) noexcept
    cdef uint64_t room(self) noexcept
    cdef int note_capacity(self, bint served, bint blocked) except -1
    cdef double capacity_share(self, bint is_empty) noexcept
    cdef Consumer active(self)
    cdef str exclusive_tag(self)
    cdef int expect(self, Consumer consumer) except -1
    cdef int add(self, Consumer consumer, uint64_t ready) except -1
    cdef bint remove(self, Consumer consumer) except -1
    cdef bint stop_expecting(self, Consumer consumer) except -1
    cdef int hand_turn_on(self, Py_ssize_t at) except -1
    cdef void clear(self) noexcept
