from libc.stdint cimport uint8_t, uint16_t, uint32_t

from broker.client.channel cimport ChannelCore, Link
from broker.kernel.buffer cimport Buffer


cdef class ClientCore:
    cdef readonly Link link
    cdef readonly object settings
    cdef readonly uint16_t channel_max
    cdef readonly uint16_t heartbeat
    cdef readonly dict server_properties
    cdef readonly object blocked     # the reason, or None
    cdef Buffer partial
    cdef uint8_t phase

    cdef size_t parse(self, const uint8_t* data, size_t length) except? 0
    cdef int frame(self, uint8_t kind, uint16_t number, const uint8_t* p, uint32_t size) except -1
    cdef int method(self, uint16_t number, const uint8_t* p, uint32_t size) except -1
    cdef ChannelCore channel_of(self, uint16_t number)
