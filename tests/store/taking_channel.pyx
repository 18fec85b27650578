# cython: language_level=3
"""A channel that takes every message at once, for tests of who delivers how much in a turn."""

from broker.kernel.contracts cimport Channel, Consumer
from broker.kernel.message cimport Message, Place


cdef class TakingChannel(Channel):
    cdef readonly list taken         # bodies

    def __init__(self):
        self.taken = []

    cdef bint can_take(self, Consumer consumer) noexcept:
        return True

    cdef int deliver(self, Consumer consumer, Message* message, Place* place) except -1:
        self.taken.append(message.body[:message.body_length])
        return 0
