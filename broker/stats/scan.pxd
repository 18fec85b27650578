from broker.queues.declared cimport DeclaredQueue
from broker.wire.channel cimport WireChannel

cdef int read_queue(DeclaredQueue queue, double* row, double* signs) except -1
cdef void count_channel(WireChannel channel, double* row) noexcept
