from libc.stdint cimport uint32_t

from broker.kernel.message cimport Message


cdef void count_size(uint32_t length) noexcept nogil
cdef void count_sizes(const Message* messages, uint32_t count) noexcept nogil
