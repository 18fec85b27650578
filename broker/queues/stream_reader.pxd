from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Consumer, Queue
from broker.kernel.turn cimport Turn
from broker.queues.stream_filter cimport StreamFilter
from broker.store.streams.cursor cimport StreamCursor
from broker.store.streams.offsets cimport ConsumerOffsets, TrackedOffset
from broker.store.streams.store cimport StreamStore
from broker.store.streams.summary cimport Summary


# What a stream and its readers share.
cdef class Readers:
    cdef Turn turn
    cdef StreamStore store
    cdef Buffer stamped
    cdef readonly list all
    cdef readonly list expected      # consumers that have not got basic.consume-ok yet
    cdef public bint paused          # no deliveries
    cdef list waiting                # those that want the next message
    cdef readonly uint64_t delivered
    cdef readonly uint64_t acked
    cdef readonly uint64_t redelivered
    cdef readonly uint64_t rejected
    cdef readonly uint64_t bytes_out
    cdef uint64_t delivered_no_ack   # of `delivered`; the rest likewise
    cdef uint64_t no_ack_bytes
    cdef uint64_t redelivered_bytes
    cdef uint64_t acked_bytes
    cdef uint64_t rejected_bytes
    cdef uint64_t skipped_before     # segments skipped by readers that have ended

    cdef uint32_t share(self) noexcept


cdef class FilteredCursor(StreamCursor):
    cdef StreamFilter filter


cdef class StreamReader(Queue):
    cdef readonly object stream
    cdef Readers readers
    cdef readonly Consumer consumer
    cdef StreamCursor cursor
    cdef StreamFilter filter
    cdef TrackedOffset tracked       # None: the server does not keep its place
    cdef uint64_t frontier           # the next message it did not get yet
    cdef list returned               # offsets to deliver again, lowest first
    cdef uint64_t* unacked           # offsets, ascending, from `unacked_first` on
    cdef uint32_t unacked_first
    cdef uint32_t unacked_count
    cdef uint32_t unacked_capacity
    cdef bint is_waiting

    cdef int stop_expecting(self, Consumer consumer) except -1
    cdef int note_turn(self, uint32_t records) except -1
    cdef int wait(self) except -1
    cdef int note_delivered(self, uint64_t offset) except -1
    cdef int note_settled(self, uint64_t offset) except -1


cdef class StreamBrowser:
    cdef StreamCursor cursor
    cdef Buffer stamped
    cdef uint32_t left
    cdef uint64_t bytes_left
    cdef object later
    cdef object done
    cdef list rows
    cdef readonly str trouble      # why the object store does not give what it waits for
