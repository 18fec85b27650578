from libc.stdint cimport uint8_t

from broker.kernel.contracts cimport Queue
from broker.kernel.message cimport Message
from broker.store.bodies.wide_message cimport WideMessage
from broker.store.bodies.store cimport BodyStore


cdef class WideLetter(WideMessage):
    cdef uint8_t flags                   # of the message that died
    cdef object passes                   # queue -> whether it gets the letter; None: each does
    cdef set takers                      # the queues that have it already; None: there are none
    cdef set only                        # the queues that get it, after a refusal; None: all
    cdef set full                        # queues that are not asked; None: there are none
    cdef set refused                     # queues that are full; None: none was yet
    cdef Py_ssize_t taken                # how many took it

    cdef int begin(self, Message* letter, found, BodyStore bodies, bint shared) except -1
    cdef bint go_on_a_turn(self, bint has_origin) except -1
    cdef int offer(self, Queue queue, bint confirm) except -1


cdef only_to(set waits, found)
