from broker.kernel.contracts cimport Queue


cdef class Sink(Queue):
    pass
