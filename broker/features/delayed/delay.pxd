from libc.stdint cimport int64_t, uint8_t, uint32_t

from broker.kernel.message cimport Message


cdef int64_t delay_of(const uint8_t* properties, uint32_t length) except? -1
cdef bytes negated(Message* message, int64_t delay)
