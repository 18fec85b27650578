# cython: language_level=3
"""The frames of a client on a WebSocket, taken apart where they were received (RFC 6455, section
5.2).

The content of data frames is handed on as it comes: of a message that is not whole nothing is held,
and thousands of small frames in a chunk are one piece of content. Handshake, closing and our own
pings are the `websockets` library's (`broker.server.websocket`).
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from broker.kernel.buffer cimport load16, load64
from broker.kernel.octets cimport Octets, writable_octets

cdef enum:
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10
    FIN = 0x80
    RESERVED = 0x70
    MASKED = 0x80
    CONTROL_MAX = 125
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    MESSAGE_TOO_BIG = 1009


cdef class FrameReader:
    """`message_max` is in bytes. After a `fault` or a `close` nothing more is taken apart."""

    def __init__(self, uint64_t message_max):
        self.message_max = message_max
        self.wanted = 2
        self.ping_length = -1

    def take(self, data, size_t length):
        """Takes `length` bytes apart that were received into `data`. Returns how many bytes of
        content are at its beginning now."""
        cdef Octets received = writable_octets(data)
        cdef uint8_t* source = received.data
        cdef const uint8_t* end = source + length
        cdef uint8_t* target = source
        cdef size_t part
        while source < end and not self.fault and self.close is None:
            if self.left:
                part = min(<uint64_t> (end - source), self.left)
                target += self.unmask(target, source, part)
            else:
                part = min(<size_t> (end - source), self.wanted - self.head_length)
                memcpy(self.head + self.head_length, source, part)
                self.head_length += part
                if self.head_length == self.wanted and self.enter():
                    self.head_length = 0
                    self.wanted = 2
            source += part
        return target - received.data

    def take_ping(self):
        """The content of the newest ping, once; None if none waits for its pong. While several
        wait, the newest is enough (section 5.5.3)."""
        cdef bytes content
        if self.ping_length < 0:
            return None
        content = self.ping_content[:self.ping_length]
        self.ping_length = -1
        return content

    cdef size_t unmask(self, uint8_t* target, const uint8_t* source, size_t length) noexcept:
        """The next bytes of the data frame. `target` may lie before `source` in the same memory."""
        cdef uint64_t word
        cdef size_t at = 0
        cdef int turned = 8 * (length & 3)
        while at + 8 <= length:
            memcpy(&word, source + at, 8)
            word ^= self.key
            memcpy(target + at, &word, 8)
            at += 8
        while at < length:
            target[at] = source[at] ^ (<uint8_t*> &self.key)[at & 7]
            at += 1
        if turned:
            self.key = self.key >> turned | self.key << (64 - turned)
        self.left -= length
        return length

    cdef bint enter(self) except -1:
        """What is in `head` is as long as `wanted`. Returns whether the next frame's head comes
        next; no: `wanted` has grown, or there is a fault."""
        cdef uint8_t kind = self.head[0] & 15
        cdef uint8_t short_length = self.head[1] & 127
        cdef size_t size = 2 if short_length < 126 else 4 if short_length == 126 else 10
        cdef uint64_t length
        if self.head_length == 2:
            if self.head[0] & RESERVED:
                return self.fail(PROTOCOL_ERROR, "reserved bits must be 0")
            if kind > BINARY and kind != CLOSE and kind != PING and kind != PONG:
                return self.fail(PROTOCOL_ERROR, f"invalid opcode: {kind:#x}")
            if not self.head[1] & MASKED:
                return self.fail(PROTOCOL_ERROR, "incorrect masking")
            if kind == TEXT:
                return self.fail(UNSUPPORTED_DATA, "AMQP is binary")
            if kind >= CLOSE and short_length > CONTROL_MAX:
                return self.fail(PROTOCOL_ERROR, "control frame too long")
            if kind >= CLOSE and not self.head[0] & FIN:
                return self.fail(PROTOCOL_ERROR, "fragmented control frame")
            if kind == BINARY and self.in_message:
                return self.fail(PROTOCOL_ERROR, "expected a continuation frame")
            if kind == CONTINUATION and not self.in_message:
                return self.fail(PROTOCOL_ERROR, "unexpected continuation frame")
            self.wanted = size + 4 + (short_length if kind >= CLOSE else 0)
            return False
        self.frames += 1
        if kind >= CLOSE:
            self.control()
            return True
        length = (short_length if size == 2 else load16(self.head + 2) if size == 4
                  else load64(self.head + 2))
        if kind == BINARY:
            self.message_length = 0
        if length > self.message_max - self.message_length:
            return self.fail(
                MESSAGE_TOO_BIG,
                f"a message of {self.message_length + length} bytes exceeds the limit of "
                f"{self.message_max} bytes (ws_message_max)")
        self.message_length += length
        self.in_message = not self.head[0] & FIN
        self.empty += length == 0
        self.left = length
        memcpy(&self.key, self.head + size, 4)
        memcpy(<uint8_t*> &self.key + 4, self.head + size, 4)
        return True

    cdef void control(self):
        """A whole control frame is in `head`."""
        cdef uint8_t kind = self.head[0] & 15
        cdef int at
        if kind == CLOSE:
            self.close = self.head[:self.head_length]
            return
        self.empty += 1
        if kind == PING:
            self.ping_length = <int> self.head_length - 6
            for at in range(self.ping_length):
                self.ping_content[at] = self.head[6 + at] ^ self.head[2 + (at & 3)]

    cdef int fail(self, int code, str reason) except -1:
        self.fault = code
        self.reason = reason
        return 0
