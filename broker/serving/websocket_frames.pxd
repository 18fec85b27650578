from libc.stdint cimport uint8_t, uint64_t


cdef class FrameReader:
    cdef readonly uint64_t frames    # since the connection began
    cdef readonly uint64_t empty     # of these: pings, pongs, data frames without content
    cdef readonly int fault          # code of the close that the client has to get; 0: none
    cdef readonly str reason         # of it
    cdef readonly bytes close        # the client's close frame
    cdef uint8_t ping_content[125]   # of the newest ping that waits for its pong
    cdef int ping_length             # -1: none waits
    cdef uint64_t message_max
    cdef uint64_t message_length     # of the message so far, this frame included
    cdef bint in_message             # its last frame has not come
    cdef uint64_t left               # of the data frame that is being read
    cdef uint64_t key                # its masking key, eight times 1 byte from the next one on
    cdef uint8_t head[131]           # of a frame whose head is not whole; a whole control frame
    cdef size_t head_length
    cdef size_t wanted               # of `head`

    cdef size_t unmask(self, uint8_t* target, const uint8_t* source, size_t length) noexcept
    cdef bint enter(self) except -1
    cdef void control(self)
    cdef int fail(self, int code, str reason) except -1
