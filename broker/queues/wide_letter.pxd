from libc.stdint cimport uint8_t

from broker.kernel.message cimport Message, Origin
from broker.kernel.reached cimport Reached
from broker.store.bodies.store cimport BodyStore


cdef class WideLetter:
    cdef Message message                 # points into what follows
    cdef object body
    cdef readonly bytes exchange
    cdef readonly bytes routing_key
    cdef bytes properties
    cdef bytes reference                 # of a shared body; else None
    cdef BodyStore bodies                # where this letter shares its body; None: it does not
    cdef uint8_t flags                   # of the message that died
    cdef object steps                    # that find its queues; None: they are found
    cdef object passes                   # queue -> whether it gets the letter; None: each does
    cdef tuple targets                   # once they are found,
    cdef Reached reached                 # or these, where they are more than a tuple should have
    cdef Py_ssize_t count
    cdef Py_ssize_t at                   # of them were offered the letter
    cdef set takers                      # the queues that have it already; None: there are none
    cdef set only                        # the queues that get it, after a refusal; None: all
    cdef set refused                     # queues that are full; None: none was yet
    cdef bint is_kept                    # its queues are asked for at the end
    cdef Py_ssize_t taken                # how many took it
    cdef int held                        # how many of them answer later, since the last look
    cdef int result                      # what the takers answered together

    cdef int keep(self, Message* letter, found, BodyStore bodies, bint shared) except -1
    cdef bint go_on(self, bint has_origin) except -1
    cdef int note(self, found) except -1
    cdef int offer(self, bint has_origin) except -1
    cdef tuple queues(self)
    cdef int end(self) except -1
