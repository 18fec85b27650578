from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Confirmer
from broker.kernel.turn cimport Task, Turn


cdef enum:
    OUT_FULL = 256 << 10         # bytes of unsent frames above which no more deliveries are written


cdef class Output(Task):
    cdef Buffer out
    cdef Turn turn
    cdef public object transport
    cdef object buffered
    cdef public int fd               # >= 0: a socket that may be written to directly
    cdef readonly bint congested
    cdef bint closed
    cdef readonly uint32_t frame_max
    cdef readonly uint64_t send_oct
    cdef readonly uint64_t send_cnt
    cdef list confirmers

    cdef int touch(self) except -1
    cdef int touch_confirm(self, Confirmer confirmer) except -1
    cdef int write_confirms(self) except -1
    cdef int uncongested(self) except -1
