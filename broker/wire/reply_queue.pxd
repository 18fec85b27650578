from broker.kernel.contracts cimport Consumer, Queue


cdef class ReplyQueue(Queue):
    cdef readonly str name
    cdef public Consumer consumer
    cdef readonly bint deleted
    cdef object came
    cdef object gone
