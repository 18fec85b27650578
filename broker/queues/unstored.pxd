from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.message cimport Message
from broker.kernel.turn cimport Turn
from broker.queues.declared cimport DeclaredQueue
from broker.store.bodies.wide_message cimport WideMessage


cdef class Unstored:
    cdef Turn turn
    cdef uint32_t most
    cdef uint64_t bytes_most
    cdef object waiting                  # deque of (WideMessage, reason, bytes)
    cdef bint is_told                    # the log says that some are given up

    cdef bint are_any(self) noexcept
    cdef bint add(self, DeclaredQueue queue, Message* message, int reason) except -1
    cdef WideMessage first(self)
    cdef int reason(self) except -1
    cdef int drop_first(self) except -1
