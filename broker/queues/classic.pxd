from libc.stdint cimport uint32_t

from broker.kernel.message cimport Message, Place
from broker.queues.limited cimport LimitedQueue


cdef class ClassicQueue(LimitedQueue):
    cdef object _duplicates              # remembered message ids (a feature), or None
    cdef object getters                  # in the order they asked; None without any
    cdef uint32_t held_back              # long operations that requeue messages in slices
    cdef bytes shown                     # properties of the delivery at hand, where they changed

    cdef int serve_getters(self) except -1
    cdef tuple told(self, Message* message, Place* place)
    cdef int show_returns(self, Message* message, Place* place) except -1
