from libc.stdint cimport int64_t, uint64_t

from broker.contracts cimport Queue
from broker.queues.stream_reader cimport Readers
from broker.store.stream_store cimport StreamStore


cdef class StreamQueue(Queue):
    cdef readonly str name
    cdef readonly str vhost_name
    cdef object _arguments
    cdef readonly uint64_t incarnation
    cdef public object owner
    cdef public object unused
    cdef public object policy
    cdef public object gauge
    cdef public object dead_letter
    cdef public object bodies            # of the vhost; a stream embeds every body
    cdef public object later
    cdef public int64_t used_at
    cdef readonly bint deleted
    cdef readonly object retention
    cdef readonly StreamStore store
    cdef readonly Readers readers
    cdef object timer
    cdef readonly uint64_t published
    cdef readonly uint64_t confirmed
    cdef readonly uint64_t bytes_in
    cdef readonly uint64_t dropped           # messages that retention took
