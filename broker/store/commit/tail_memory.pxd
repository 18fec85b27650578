from libc.stdint cimport uint8_t


cdef enum:
    TAIL_FULL = 1 << 20          # a tail of this size is written by the next round
    TAIL_COPIED = 16 << 10       # up to this size a tail is copied when it grows


cdef uint8_t* tail_new(size_t wanted, size_t* capacity) noexcept
cdef uint8_t* tail_grown(uint8_t* data, size_t length, size_t wanted, size_t* capacity) noexcept
cdef void tail_free(uint8_t* data, size_t capacity) noexcept
cdef void give_back_spares() noexcept
