from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Exchange
from broker.kernel.recording cimport Observer
from broker.queues.stream cimport StreamQueue
from broker.store.commit.persister cimport Persister


cpdef enum:
    OFF = 0
    HEADERS = 1
    FULL = 2

cdef enum:
    PLACE_DIGITS = 32                    # of the text of a place


cdef class Way:
    cdef int level
    cdef tuple places                    # the queues whose places are written, too; None: of none
    cdef list fields


cdef class Book:
    cdef public StreamQueue stream       # None: there is none now
    cdef public dict levels              # exchange or queue -> HEADERS or FULL
    cdef readonly uint64_t version       # rises when ways are asked for again
    cdef public uint64_t records
    cdef public uint64_t record_bytes    # of the bodies in them
    cdef readonly uint64_t events
    cdef readonly uint64_t events_lost   # given up
    cdef Persister persister
    cdef object memory                   # () -> bytes that wait for the disk, at which none is kept
    cdef Buffer out
    cdef uint64_t missing                # given up since the last event that was kept
    cdef int64_t missing_since           # ms
    cdef dict clients                    # (name of a connection, user) -> fields that name them
    cdef dict ways                       # exchange -> queues of a route -> Way
    cdef size_t way_count

    cdef Way way(self, Exchange exchange, tuple targets)
    cdef bint has_room(self) except -1
    cdef int begin(self, bytes event, const char* place, uint32_t digits, bytes queue) except -1
    cdef int add_client(self, who) except -1
    cdef int add_queues(self, targets) except -1
    cdef int finish(self, bytes exchange, bytes routing_key) except -1
    cdef int note_missing(self) except -1


cdef class QueueObserver(Observer):
    cdef Book book
    cdef bytes name
    cdef uint64_t incarnation
    cdef uint64_t stored                 # place of the message at hand; 0: it is not stored


cdef int add_places(Buffer out, tuple targets) except -1
