from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.contracts cimport Exchange, Queue
from broker.kernel.message cimport Message
from broker.kernel.reached cimport Reached
from broker.store.bodies.store cimport BodyStore


cdef class FanOut:
    cdef Message message                 # points into what follows
    cdef bytes exchange_name
    cdef bytes routing_key
    cdef bytes properties
    cdef object body
    cdef bytes reference                 # of the body, while it is shared; else None
    cdef readonly Exchange exchange
    cdef object found                    # its queues, or the steps that find them
    cdef bint mandatory
    cdef bint is_looked_at               # not the key alone decides
    cdef bint is_inspected               # its properties have been looked at
    cdef uint64_t version                # of the topology when it was published
    cdef tuple targets                   # once they are found,
    cdef Reached reached                 # or these, where they are more than a tuple should have
    cdef Py_ssize_t count
    cdef Py_ssize_t at                   # of them have it
    cdef int result                      # what they answered together
    cdef int held                        # how many of them answer later

    cdef int keep(self, Message* message) except -1
    cdef int begin(self, targets, BodyStore bodies, uint32_t share_from) except -1
    cdef bint give(self, bint confirm, connection) except -1
    cdef int end(self, BodyStore bodies) except -1
