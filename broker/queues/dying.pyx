# cython: language_level=3
"""Places of messages that the queue has removed and that still have to be dead-lettered, in the
order of removal. They count as unacknowledged until they are published or discarded."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from broker.kernel.message cimport Place

# RabbitMQ's words, as x-death shows them.
REASONS = ("rejected", "expired", "maxlen", "delivery_limit")


def reason_name(int reason) -> str:
    return REASONS[reason]


cdef class Dying:
    """A ring of at most `most` places; callers check the limit before they add. An empty ring owns
    no memory."""

    def __init__(self, uint32_t most=0):
        self.most = most

    def __dealloc__(self):
        free(self.entries)

    cdef int add(self, Place* place, int reason) except -1:
        cdef Death* grown
        cdef uint32_t capacity, i
        if self.count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else 16
            grown = <Death*> malloc(capacity * sizeof(Death))
            if grown == NULL:
                raise MemoryError("no memory for a queue's dead letters")
            for i in range(self.count):
                grown[i] = self.entries[(self.first + i) & (self.capacity - 1)]
            free(self.entries)
            self.entries = grown
            self.capacity = capacity
            self.first = 0
        i = (self.first + self.count) & (self.capacity - 1)
        self.entries[i].place = place[0]
        self.entries[i].reason = reason
        self.count += 1
        return 0

    cdef Death* head(self) noexcept:
        """The oldest death; only where there is one."""
        return &self.entries[self.first]

    cdef void pop(self) noexcept:
        self.first = (self.first + 1) & (self.capacity - 1)
        self.count -= 1
        if self.count == 0:
            free(self.entries)
            self.entries = NULL
            self.capacity = self.first = 0
