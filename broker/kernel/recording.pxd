from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.contracts cimport Exchange, Queue
from broker.kernel.message cimport Message, Place


# What happened to a message of a queue, as an `Observer` gets it. The first four are the reasons of
# `broker.queues.dying`, in their order; what goes without acknowledgement is one more. The names
# are in `broker.schema.message_history`.
cpdef enum:
    EVENT_REJECTED
    EVENT_EXPIRED
    EVENT_DROPPED
    EVENT_DELIVERY_LIMIT
    EVENT_DELIVERED
    EVENT_DELIVERED_NO_ACK
    EVENT_GOT
    EVENT_GOT_NO_ACK
    EVENT_ACKED
    EVENT_REQUEUED
    EVENT_DEAD_LETTERED
    EVENT_DISCARDED
    EVENT_MOVED
    EVENT_COPIED
    EVENT_REPLAYED
    EVENT_PURGED
    EVENT_DELETED


cdef class Recording:
    cdef int record(self, Message* message, Exchange exchange, tuple targets,
                    int answer) except -1
    cdef int record_run(self, Message* messages, uint32_t count, Exchange exchange, tuple targets,
                        int answer) except -1


cdef class Recorder:
    cdef public bint on
    cdef public object begin             # (user, connection) -> Recording


cdef class Observer:
    cdef int took(self, Queue queue, Message* message) except -1
    cdef int saw(self, int event, Place* place, who) except -1
    cdef int passed_on(self, int event, uint64_t place, targets, bytes exchange,
                       bytes routing_key) except -1
