# cython: language_level=3
"""The content of a publish while it is being received: method, content header, body.

Content that lies in one received chunk is read there: pointers show where. If the bytes end before
the content does, `keep` copies them. A large body that comes in parts is collected in a file, so
that half-sent ones cost no memory.
"""

import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.fields.tables cimport walk_properties
from broker.kernel cimport clock
from broker.kernel.buffer cimport Buffer, load16, load64
from broker.kernel.large_body cimport LARGE_BODY
from broker.kernel.message cimport EXPIRES, Message, PERSISTENT
from broker.schema.errors import FrameError, PreconditionFailed, UnexpectedFrame
from broker.store.commit.content_file cimport ContentFile


cdef extern from *:
    int __builtin_clz(unsigned int value) nogil


cdef enum:
    LONG = 64 << 10              # of a body


cdef int plain_delivery_mode(const uint8_t* p, uint32_t length) noexcept nogil:
    """The delivery mode of a property list without headers; -1 if it has some, or is malformed."""
    cdef uint32_t at = 2
    cdef uint32_t size, left
    cdef int bit
    cdef int mode = 1
    if length < 2:
        return -1
    left = load16(p)
    if left & (1 << 13 | 3):
        return -1
    while left:
        bit = 31 - __builtin_clz(left)
        left &= ~(<uint32_t> 1 << bit)
        if at >= length:
            return -1
        if bit == 12 or bit == 11:
            size = 1
            if bit == 12:
                mode = p[at]
        elif bit == 6:
            size = 8
        else:
            size = 1 + <uint32_t> p[at]
        if size > length - at:
            return -1
        at += size
    return mode if at == length else -1


cdef class Upload:
    """One channel's. Bodies are at most `size_max` bytes long."""

    def __init__(self, uint64_t size_max, uint64_t in_memory):
        self.expect = EXPECT_METHOD
        self.size_max = size_max
        self.in_memory = in_memory
        self.kept = Buffer()

    cdef bint header(self, const uint8_t* payload, uint32_t length) except -1:
        """A content header. Returns whether the message is whole, as its body is empty."""
        if self.expect == EXPECT_METHOD:
            raise UnexpectedFrame("expected method frame, got non method frame instead")
        if self.expect == EXPECT_BODY:
            raise UnexpectedFrame("expected content body, got non content body frame instead")
        if length < 14:
            raise FrameError("cannot decode: a content header ends too early")
        if load16(payload) != 60:
            raise UnexpectedFrame(
                "expected content header for class 60, "
                f"got one for class {load16(payload)} instead")
        self.body_length = load64(payload + 4)
        if self.body_length > self.size_max:
            self.expect = EXPECT_METHOD
            self.kept.release()
            raise PreconditionFailed(
                f"message size {self.body_length} is larger than configured max size "
                f"{self.size_max}")
        self.received = 0
        self.properties = payload + 12
        self.properties_length = length - 12
        if self.is_kept:
            self.kept.add(self.properties, self.properties_length)
        self.expect = EXPECT_BODY
        return self.is_whole_body(payload, 0)

    cdef int check_part(self, uint32_t length) except -1:
        """Raises UnexpectedFrame or FrameError if no part of a body of this length may come now."""
        if self.expect == EXPECT_METHOD:
            raise UnexpectedFrame("expected method frame, got non method frame instead")
        if self.expect == EXPECT_HEADER:
            raise UnexpectedFrame(
                "expected content header for class 60, got non content header frame instead")
        if length > self.body_length - self.received:
            raise FrameError("content body frame exceeds remaining content size")
        return 0

    cdef bint is_long(self) noexcept:
        """Whether few such bodies fill the receive buffer of the kernel, if that is bound."""
        return self.body_length >= LONG

    cdef bint needs_file(self) noexcept:
        """Whether the body is to be collected in a file, and there is none yet."""
        return not self.body_kept and self.body_length > self.in_memory

    cdef bint add(self, const uint8_t* payload, uint32_t length) except -1:
        """A part of the body. Returns whether the message is whole."""
        if not self.body_kept:
            self.keep()
            self.body_kept = True
        self.received += length
        if self.file is not None:
            self.file.add(payload, length)
            return False
        self.kept.add(payload, length)
        return self.received == self.body_length

    cdef bint has_to_wait(self) except -1:
        """Whether no more may be read for now: the disk is behind with the body, or has to read it
        back."""
        return self.file is not None and (
            self.received == self.body_length or self.file.is_behind)

    cdef bint take_file(self) except -1:
        """The thread that writes the file has done something. Returns whether the message is whole.
        Raises PreconditionFailed if the disk did not take the body."""
        cdef ContentFile file = self.file
        if file.error:
            self.drop_file()
            self.expect = EXPECT_METHOD
            raise PreconditionFailed(
                f"cannot take a message of {file.length} bytes: {os.strerror(file.error)}")
        if file.whole:
            self.body = file.body.body()
        return file.whole

    cdef int keep(self) except -1:
        """The chunk ends, or the body comes in parts: copies what the pointers show."""
        if self.expect == EXPECT_METHOD or self.is_kept:
            return 0
        self.is_kept = True
        self.kept.length = 0
        self.kept.add(self.method, self.method_length)
        if self.expect == EXPECT_BODY:
            self.kept.add(self.properties, self.properties_length)
        return 0

    cdef bint view(self, Message* message) except -1:
        """Fills in the message, which is whole. Returns whether it is mandatory. Raises FrameError
        for properties that cannot be decoded."""
        cdef const uint8_t* p
        cdef int delivery_mode
        self.expect = EXPECT_METHOD
        if self.is_kept:
            self.method = self.kept.data
            self.properties = self.kept.data + self.method_length
            if self.body_kept and self.file is None:
                self.body = self.kept.data + self.method_length + self.properties_length
        delivery_mode = plain_delivery_mode(self.properties, self.properties_length)
        if delivery_mode < 0:
            delivery_mode = walk_properties(self.properties, self.properties_length)
        p = self.method
        message.exchange_length = p[0]
        message.exchange = p + 1
        p += 1 + <uint32_t> p[0]
        message.routing_key_length = p[0]
        message.routing_key = p + 1
        p += 1 + <uint32_t> p[0]
        message.properties = self.properties
        message.properties_length = self.properties_length
        message.body = self.body
        message.large = NULL
        if self.file is not None and self.body_length >= LARGE_BODY:
            message.large = <void*> self.file.body
        message.body_length = <uint32_t> self.body_length
        message.flags = PERSISTENT if delivery_mode == 2 else 0
        if load16(self.properties) & 1 << 8:
            message.flags |= EXPIRES
        message.timestamp = clock.now_ms
        return p[0] & 1

    cdef int drop_file(self) except -1:
        cdef ContentFile file = self.file
        if file is not None:
            self.file = None
            file.end()
        return 0

    cdef int end(self) except -1:
        """The channel has ended: an unfinished message is dropped."""
        self.expect = EXPECT_METHOD
        self.kept.release()
        return self.drop_file()
