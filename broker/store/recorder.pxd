from libc.stdint cimport uint64_t


# In the order of PLANTS; looked at where it costs nothing only: never for each message.
cdef enum:
    PLANTED_NO_SYNC = 1
    PLANTED_NO_DIRECTORY_SYNC = 2
    PLANTED_CONFIRM_BEFORE_WRITE = 3
    PLANTED_CONFIRM_BEFORE_SYNC = 4
    PLANTED_NO_CHECK = 5
    PLANTED_CONFIRM_ONE_MORE = 6
    PLANTED_SKIP_LAST = 7
    PLANTED_KEEP_ACKS = 8
    PLANTED_REUSE_NUMBERS = 9
    PLANTED_IGNORE_FULL_DISK = 10
    PLANTED_REQUEUE_LAST = 11
    PLANTED_HAND_OVER_EARLY = 12

cdef int planted
cdef int recording
cdef int failing(int kind) noexcept nogil
cdef bint fails_always(int kind) noexcept nogil
cdef void record_event(const char* kind, const char* path, uint64_t offset, uint64_t length,
                       int error, const void* data, size_t data_length) noexcept nogil
cdef void record_mark(const char* kind, uint64_t number) noexcept nogil
