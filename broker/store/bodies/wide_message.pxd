from libc.stdint cimport int64_t

from broker.kernel.contracts cimport Queue
from broker.kernel.message cimport Message
from broker.kernel.reached cimport Reached
from broker.store.bodies.store cimport BodyStore


cdef class WideMessage:
    cdef Message message                 # points into what follows
    cdef readonly bytes exchange
    cdef readonly bytes routing_key
    cdef bytes properties
    cdef object body                     # None: only the reference of a shared one is known
    cdef bytes reference                 # of a shared body; else None
    cdef BodyStore bodies                # where this message shares its body; None: it does not
    cdef BodyStore holding               # where it holds the body it refers to; None: others do
    cdef object steps                    # that find its queues; None: they are found
    cdef tuple targets                   # once they are found,
    cdef Reached reached                 # or these, where they are more than a tuple should have
    cdef Py_ssize_t count
    cdef Py_ssize_t at                   # of them were offered the message
    cdef bint is_kept                    # its queues are asked for at the end
    cdef int held                        # how many of them answer later
    cdef int result                      # what they answered together

    cdef int keep(self, Message* message) except -1
    cdef int share(self, BodyStore bodies) except -1
    cdef int hold(self, BodyStore bodies) except -1
    cdef int note(self, found) except -1
    cdef Queue queue_at(self, Py_ssize_t at)
    cdef bint give(self, bint confirm) except -1
    cdef bint go_on(self, bint confirm, int64_t nanoseconds) except -1
    cdef int offer(self, Queue queue, bint confirm) except -1
    cdef tuple queues(self)
    cdef int end(self) except -1
