# cython: language_level=3
"""Publishes that wait for their confirm: a ring of flags between the oldest and the next."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from broker.client.errors import ProtocolError
from broker.client.measuring cimport Histogram, now_ns

cdef enum:
    FIRST_ROOM = 1024


cdef class Unconfirmed:
    """Sequence numbers of one channel in confirm mode, from 1 on. With a histogram, the time from
    publish to confirm goes there."""

    def __cinit__(self, Histogram histogram=None):
        self.next = self.base = 1
        self.count = self.acked = self.nacked = 0
        self.refused = []
        self.histogram = histogram
        self.settled = NULL
        self.sent_ns = NULL
        self.mask = FIRST_ROOM - 1
        self.settled = <uint8_t*> calloc(FIRST_ROOM, 1)
        if histogram is not None:
            self.sent_ns = <int64_t*> calloc(FIRST_ROOM, sizeof(int64_t))
        if self.settled == NULL or (histogram is not None and self.sent_ns == NULL):
            raise MemoryError("no memory for unconfirmed publishes")

    def __dealloc__(self):
        free(self.settled)
        free(self.sent_ns)

    cdef uint64_t publish(self) except 0:
        """The sequence number of a publish."""
        cdef uint64_t number = self.next
        if number - self.base > self.mask:
            self.grow()
        self.settled[number & self.mask] = 0
        if self.sent_ns != NULL:
            self.sent_ns[number & self.mask] = now_ns()
        self.next = number + 1
        self.count += 1
        return number

    cdef int settle(self, uint64_t tag, bint multiple, bint ack) except -1:
        """An ack or nack of one, or of all up to it (0: all). Raises ProtocolError for a number
        that was not published or is settled already."""
        cdef uint64_t first, last, number, at
        cdef int64_t now = now_ns() if self.sent_ns != NULL else 0
        if multiple:
            first, last = self.base, tag if tag else self.next - 1
        else:
            first = last = tag
        if last >= self.next or last < self.base or first == 0:
            if multiple and last < self.next:
                return 0
            raise ProtocolError(f"a confirm for publish {tag}, which is not outstanding")
        number = first
        while number <= last:
            at = number & self.mask
            if self.settled[at]:
                if not multiple:
                    raise ProtocolError(f"a second confirm for publish {tag}")
            else:
                self.settled[at] = 1
                self.count -= 1
                if ack:
                    self.acked += 1
                else:
                    self.nacked += 1
                    self.refused.append(number)
                if self.sent_ns != NULL:
                    self.histogram.add(now - self.sent_ns[at])
            number += 1
        while self.base < self.next and self.settled[self.base & self.mask]:
            self.base += 1
        return 0

    cdef int grow(self) except -1:
        cdef uint64_t room = (self.mask + 1) * 2
        cdef uint64_t number
        cdef uint8_t* settled = <uint8_t*> calloc(room, 1)
        cdef int64_t* sent_ns = NULL
        if self.sent_ns != NULL:
            sent_ns = <int64_t*> calloc(room, sizeof(int64_t))
        if settled == NULL or (self.sent_ns != NULL and sent_ns == NULL):
            free(settled)
            free(sent_ns)
            raise MemoryError(f"no memory for {room} unconfirmed publishes")
        for number in range(self.base, self.next):
            settled[number & (room - 1)] = self.settled[number & self.mask]
            if sent_ns != NULL:
                sent_ns[number & (room - 1)] = self.sent_ns[number & self.mask]
        free(self.settled)
        free(self.sent_ns)
        self.settled, self.sent_ns = settled, sent_ns
        self.mask = room - 1
        return 0
