from broker.contracts cimport Queue


cdef class Sink(Queue):
    pass
