from broker.kernel.contracts cimport Exchange
from broker.kernel.message cimport Message


cdef class Recording:
    cdef int record(self, Message* message, Exchange exchange, tuple targets,
                    int answer) except -1


cdef class Recorder:
    cdef public bint on
    cdef public object begin             # (user, connection) -> Recording
