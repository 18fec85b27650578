from libc.stdint cimport uint8_t, uint32_t

from broker.kernel.message cimport Message
from broker.store.streams.store cimport SharedHeaders, StreamStore


cdef enum:
    TABLE_MOST = 64              # bytes of a table of headers that `append_alike` takes


cdef bint append_alike(StreamStore store, const Message* messages, uint32_t count,
                       SharedHeaders* shared, const uint8_t* table, uint32_t table_length,
                       bint with_body) except -1
