# cython: language_level=3
"""Where an exchange's duplicates go: a queue that keeps nothing.

The confirm of a duplicate waits for the disk like that of the first message, which may be on its
way there still.
"""

from broker.kernel.contracts cimport NEEDS_SYNC, Queue, STORED
from broker.kernel.message cimport Message, PERSISTENT, Place


cdef class DiscardingQueue(Queue):
    def __init__(self, bint durable):
        self.durable = durable

    cdef int publish(self, Message* message, bint confirm) except -1:
        return NEEDS_SYNC if self.durable and message.flags & PERSISTENT else STORED

    cdef int settle(self, Place* place, bint acked) except -1:
        return 0

    cdef int requeue(self, Place* place) except -1:
        return 0

    cdef int touch(self) except -1:
        return 0

    cdef int work(self) except -1:
        return 0
