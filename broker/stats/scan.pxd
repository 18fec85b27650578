from broker.queues.declared cimport DeclaredQueue
from broker.wire.channel cimport Channel

cdef int read_queue(DeclaredQueue queue, double* row, double* signs) except -1
cdef void count_channel(Channel channel, double* row) noexcept
