from libc.stdint cimport uint64_t

from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Exchange, Queue
from broker.kernel.message cimport Message
from broker.kernel.recording cimport Recording


cdef class Book:
    cdef public Queue stream             # None: there is none now
    cdef public dict levels              # exchange or queue -> HEADERS or FULL
    cdef public uint64_t version         # rises when `levels` changes
    cdef readonly uint64_t records
    cdef readonly uint64_t record_bytes  # of the bodies in them


cdef class ChannelRecording(Recording):
    cdef Book book
    cdef str user
    cdef str connection
    cdef Buffer out
    # What the next fields hold for.
    cdef Exchange exchange
    cdef tuple targets
    cdef uint64_t version
    cdef int level
    cdef list fields                     # headers in front of the message's own, by outcome

    cdef int look(self, Exchange exchange, tuple targets) except -1
    cdef int put_headers(self, Message* message, bytes fields) except -1
