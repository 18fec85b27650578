from libc.stdint cimport uint32_t

from broker.kernel.message cimport Message
from broker.queues.classic cimport ClassicQueue


cdef int receive_returned(ClassicQueue queue, Message* letter, uint32_t returns,
                          bint confirm) except -1
cdef bint has_room(ClassicQueue queue, Message* message, bint may_serve) except -1
