from libc.stdint cimport uint64_t


cdef class SecondTurn:
    cdef public bint is_hurried  # turns follow at once, and this one brought little
    cdef bint is_awaited         # by what asks for a round
    cdef uint64_t unwritten      # when it began to wait
    cdef int at_once             # rounds that wait for no turn

    cdef bint has_come(self, uint64_t unwritten) noexcept
    cdef bint is_worth_while(self, uint64_t unwritten) noexcept
