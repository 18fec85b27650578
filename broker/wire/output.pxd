from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.buffer cimport Buffer, store16, store32, store64
from broker.kernel.contracts cimport Confirmer
from broker.kernel.large_body cimport LargeBody
from broker.kernel.turn cimport Task, Turn


cdef enum:
    MESSAGE_HEAD = 10
    OUT_FULL = 256 << 10         # bytes of unsent frames above which no more deliveries are written
    PASSED_FROM = 32 << 10       # bytes of a body that the socket gets from where it lies


cdef inline size_t message_head(uint8_t* head, uint64_t length) noexcept:
    """What precedes `length` bytes as a binary WebSocket message of a server (RFC 6455, section
    5.2): at most MESSAGE_HEAD bytes. Returns how many."""
    head[0] = 0x82
    if length < 126:
        head[1] = <uint8_t> length
        return 2
    if length < 1 << 16:
        head[1] = 126
        store16(head + 2, <uint16_t> length)
        return 4
    head[1] = 127
    store64(head + 2, length)
    return 10


cdef inline uint8_t* put_body(uint8_t* p, uint16_t channel, const uint8_t* body, uint64_t length,
                              uint32_t part_max) noexcept nogil:
    """Body frames with at most `part_max` bytes each. Returns where they end."""
    cdef uint32_t part
    while length:
        part = <uint32_t> length if length < part_max else part_max
        p[0] = 3
        store16(p + 1, channel)
        store32(p + 3, part)
        memcpy(p + 7, body, part)
        p[7 + part] = 0xCE
        p += 8 + part
        body += part
        length -= part
    return p


# A large content that is being written: its first frames, and where the body frames are.
cdef class LargeContent:
    cdef Buffer frames               # what precedes the rest of the body, whole frames
    cdef LargeBody body
    cdef uint16_t channel
    cdef uint64_t framed             # bytes of the body that are in `frames` or were

    cdef int frame(self, uint32_t frame_max) except -1
    cdef size_t left(self) noexcept


cdef class OutputOwner:
    # Octets came or went, or did shortly before the last sample: `broker.stats.scan` looks at it.
    cdef bint stirs
    cdef bint channels_stir      # and they were more than heartbeats
    cdef int uncongested(self) except -1
    cdef int answered(self) except -1


cdef class Output(Task):
    cdef OutputOwner owner
    cdef Buffer out
    cdef Turn turn
    cdef readonly object transport
    cdef object buffered
    cdef public int fd               # >= 0: a socket that may be written to directly
    cdef bint in_messages            # each write is a binary message of a WebSocket
    cdef readonly bint congested
    cdef bint closed
    cdef int end_follows             # MSG_MORE once the writing side is about to end
    cdef public uint32_t frame_max   # as negotiated
    cdef readonly uint64_t send_oct
    cdef readonly uint64_t send_cnt
    cdef list confirmers
    cdef uint64_t held_replies       # of its channels, which wait for the disk or for a message
    cdef size_t passed               # bytes that the socket got in this turn, before its end
    cdef object large                # deque of contents that precede what is in `out`; or None

    cdef int touch(self) except -1
    cdef int touch_confirm(self, Confirmer confirmer) except -1
    cdef int write_confirms(self) except -1
    cdef bint is_full(self) noexcept
    cdef size_t unwritten(self) noexcept
    cdef int add_large(self, LargeBody body, uint16_t channel) except -1
    cdef int write_large(self) except -1
    cdef int cut_large(self) except -1
    cdef int close(self) except -1
    cdef int hand_over(self, Buffer frames) except -1
    cdef bint passes(self, uint32_t length) noexcept
    cdef int pass_body(self, const uint8_t* body, uint32_t length) except -1
    cdef ssize_t send_message(self, const uint8_t* head, size_t head_length, Buffer frames) noexcept
