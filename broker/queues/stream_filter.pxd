from libc.stdint cimport uint8_t, uint64_t

from broker.kernel.message cimport Message
from broker.queues.stream_headers cimport Header
from broker.store.streams.summary cimport Summary


cpdef enum:
    BY_DEFAULT = 0               # any of the values, and all of the headers
    ALL = 1
    ANY = 2


# One of the texts that a filter asks for.
cdef struct Wanted:
    const uint8_t* text
    size_t length
    uint64_t seen_in             # the last message that had it


# The texts that a filter asks for, in an order that a search can halve.
cdef class WantedTexts:
    cdef list texts                      # distinct, as bytes; they own what `rows` point at
    cdef Wanted* rows
    cdef Py_ssize_t count
    cdef readonly uint64_t looks         # rows that were compared with a text of a message

    cdef Py_ssize_t place_of(self, const uint8_t* text, size_t length) noexcept


cdef class StreamFilter:
    cdef readonly list values            # bytes
    cdef readonly list headers           # (name, value) as bytes
    cdef readonly bint match_unfiltered
    cdef readonly int match
    cdef list hashes                     # of the values
    cdef readonly WantedTexts wanted_values
    cdef readonly WantedTexts wanted_names
    cdef list conditions                 # by place of the name: the values asked for
    cdef uint64_t number                 # of the message that is looked at

    cdef bint takes(self, Message* message) except -1
    cdef bint has_values(self, Header* found) noexcept
    cdef bint has_headers(self, Message* message) except -1
    cdef bint may_take(self, Summary segment) except -1
