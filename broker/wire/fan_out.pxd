from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.contracts cimport Exchange, Queue
from broker.store.bodies.wide_message cimport WideMessage
from broker.store.bodies.store cimport BodyStore


cdef class FanOut(WideMessage):
    cdef readonly Exchange target
    cdef object found                    # its queues, or the steps that find them
    cdef bint mandatory
    cdef bint is_looked_at               # not the key alone decides
    cdef bint is_inspected               # its properties have been looked at
    cdef uint64_t version                # of the topology when it was published
    cdef object connection               # whose publish it is

    cdef int begin(self, found, BodyStore bodies, uint32_t share_from) except -1
    cdef int offer(self, Queue queue, bint confirm) except -1
