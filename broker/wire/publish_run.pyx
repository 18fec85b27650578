# cython: language_level=3
"""Publishes that follow each other in a chunk and are alike: the same method, and properties that
are no case for a look. What is checked of a route, a queue or a channel is checked once for all of
them. Anything else, and any fault, is left to `FrameParser.frame`, which takes frames one by one.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.buffer cimport load16, load32, load64
from broker.kernel.message cimport Message, PERSISTENT, RUN_MAX, SPECIAL_FLAGS
from broker.kernel.short_copy cimport short_equal
from broker.wire.upload cimport plain_delivery_mode

cdef enum:
    FRAME_END = 0xCE
    FRAME = 8                    # bytes of a frame without its payload
    HEADER_LEAST = 14            # payload of a content header with empty properties


cdef inline bint is_frame(const uint8_t* frame, uint8_t kind, uint16_t channel, uint64_t payload,
                          uint64_t left) noexcept nogil:
    """Whether this is a whole frame of that kind, on that channel, with so long a payload."""
    return (frame[0] == kind and load16(frame + 1) == channel and payload + FRAME <= left
            and frame[7 + payload] == FRAME_END)


cdef inline const uint8_t* take_content(const Run* run, const uint8_t* p, const uint8_t* end,
                                        Message* message) noexcept nogil:
    """Points the message to the content at `p`. Returns what follows it; NULL: it is not whole, or
    not of the run."""
    cdef uint32_t size
    cdef uint64_t body_length
    cdef int mode
    if end - p < FRAME + HEADER_LEAST:
        return NULL
    size = load32(p + 3)
    body_length = load64(p + 11)
    if (size < HEADER_LEAST or size > run.frame_max or body_length >= run.below
            or body_length > run.frame_max
            or not is_frame(p, 2, run.channel, size, end - p) or load16(p + 7) != 60):
        return NULL
    message.properties = p + 19
    message.properties_length = size - 12
    message.body_length = <uint32_t> body_length
    if load16(message.properties) & SPECIAL_FLAGS:
        return NULL
    mode = plain_delivery_mode(message.properties, message.properties_length)
    if mode < 0:
        return NULL
    message.flags = PERSISTENT if mode == 2 else 0
    p += size + FRAME
    message.body = p + 7
    if body_length:
        if (end - p < FRAME or load32(p + 3) != body_length
                or not is_frame(p, 3, run.channel, body_length, end - p)):
            return NULL
        p += body_length + FRAME
    return p


cdef void gather(Run* run, const uint8_t* data, size_t length) noexcept nogil:
    """Finds the messages of the run at the beginning of `data`, which is a whole basic.publish,
    checked, on its channel. All have the first one's flags."""
    cdef const uint8_t* end = data + length
    cdef const uint8_t* p = data
    cdef const uint8_t* behind
    cdef size_t method = load32(data + 3) + FRAME
    cdef uint8_t exchange_length = data[13]
    cdef uint8_t routing_key_length = data[14 + exchange_length]
    cdef Message* message
    run.count = run.frames = 0
    run.body_bytes = 0
    while run.count < RUN_MAX and <size_t> (end - p) > method:
        if run.count and not short_equal(p, data, method):
            break
        message = &run.messages[run.count]
        behind = take_content(run, p + method, end, message)
        if behind == NULL or message.flags != run.messages[0].flags:
            break
        message.exchange = data + 14
        message.exchange_length = exchange_length
        message.routing_key = data + 15 + exchange_length
        message.routing_key_length = routing_key_length
        message.large = NULL
        message.timestamp = clock.now_ms
        run.count += 1
        run.frames += 2 + (message.body_length != 0)
        run.body_bytes += message.body_length
        p = behind
    run.length = p - data
