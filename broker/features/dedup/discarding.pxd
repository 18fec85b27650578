from broker.kernel.contracts cimport Queue


cdef class DiscardingQueue(Queue):
    pass
