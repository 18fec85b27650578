# cython: language_level=3
"""The writing half of a connection: frames are collected here and written once per turn.

A plain socket is written to directly; only bytes that the kernel does not take at once go through
the transport, which then reports when it has sent them. Other transports (TLS, WebSocket) get whole
frames.
"""

from collections import deque

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Confirmer
from broker.kernel.large_body cimport LargeBody
from broker.kernel.turn cimport Task, Turn


cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t c_send "send"(int fd, const void* data, size_t length, int flags)
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr* message, int flags)
    int MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL


cdef enum:
    PART = 256 << 10             # bytes of a large body that are framed in a turn, at least a frame


cdef class LargeContent:

    cdef int frame(self, uint32_t frame_max) except -1:
        """Adds the next body frames."""
        cdef uint32_t part_max = frame_max - 8
        cdef uint64_t most = part_max * (PART // part_max + 1)
        cdef uint64_t length = min(most, self.body.length - self.framed)
        cdef uint8_t* p = self.frames.room(length + 8 * (length // part_max + 1))
        p = put_body(p, self.channel, self.body.body() + self.framed, length, part_max)
        self.frames.length = p - self.frames.data
        self.framed += length
        return 0

    cdef size_t left(self) noexcept:
        """Bytes that are not written, without the frames' own."""
        return self.frames.length + self.body.length - self.framed


cdef class OutputOwner:
    """What an output asks of the connection that it belongs to."""

    cdef int uncongested(self) except -1:
        """There is room again: deliveries may continue."""
        return 0

    cdef int answered(self) except -1:
        """Some replies of a channel wait no more."""
        return 0


cdef class Output(Task):
    """Outgoing bytes of one connection, the `owner`. `transport` has `.write(bytes)` and
    `.close()`."""

    def __init__(self, Turn turn, transport, int fd=-1, OutputOwner owner=None):
        self.owner = owner if owner is not None else OutputOwner()
        self.out = Buffer()
        self.turn = turn
        self.transport = transport
        self.fd = fd
        # A transport that does not call `pause_writing` says how much it still holds.
        self.buffered = getattr(transport, "buffered", None)
        self.frame_max = 4096
        self.confirmers = []

    def write_messages(self):
        """From now on each write is a binary message of a WebSocket."""
        self.in_messages = True

    @property
    def send_pend(self):
        """Bytes that are written and that the socket has not taken yet."""
        waiting = self.buffered
        if waiting is None:
            waiting = getattr(self.transport, "get_write_buffer_size", None)
        return self.unwritten() + (waiting() if waiting is not None else 0)

    cdef int touch(self) except -1:
        if not self.pending:
            self.turn.touch_connection(self)
        return 0

    cdef int touch_confirm(self, Confirmer confirmer) except -1:
        """The confirmer has something to say before this turn's write."""
        if confirmer not in self.confirmers:
            self.confirmers.append(confirmer)
        return self.touch()

    cdef int write_confirms(self) except -1:
        """Adds what the confirmers have to say so far."""
        cdef Confirmer confirmer
        for confirmer in self.confirmers:
            confirmer.write_confirm()
        self.confirmers.clear()
        return 0

    cdef int work(self) except -1:
        """Writes what has gathered."""
        cdef size_t length
        if self.confirmers:
            self.write_confirms()
        if self.large is not None and not self.closed and not self.congested:
            self.write_large()
        length = self.out.length + self.passed
        self.passed = 0
        if length == 0 or self.closed or self.congested or self.large is not None:
            return 0
        if self.out.length:
            self.hand_over(self.out)
        if length > OUT_FULL and not self.congested:
            # Queues had to stop in the middle because of what is now gone.
            self.owner.uncongested()
        return 0

    cdef int hand_over(self, Buffer frames) except -1:
        """Gives frames to the socket, and what it does not take to the transport."""
        cdef uint8_t head[MESSAGE_HEAD]
        cdef size_t head_length = 0
        cdef size_t length = frames.length
        cdef ssize_t sent = 0
        cdef bytes rest
        self.send_oct += length
        self.send_cnt += 1
        self.owner.stirs = True
        if self.in_messages:
            head_length = message_head(head, length)
        if self.fd >= 0:
            if head_length:
                sent = self.send_message(head, head_length, frames)
            else:
                sent = c_send(
                    self.fd, frames.data, length, MSG_DONTWAIT | MSG_NOSIGNAL | self.end_follows)
            if sent < 0:
                sent = 0
            if <size_t> sent == head_length + length:
                frames.drop(length)
                return 0
        if <size_t> sent < head_length:
            rest = head[sent:head_length] + frames.data[:length]
        else:
            sent -= head_length
            rest = PyBytes_FromStringAndSize(<char*> frames.data + sent, length - sent)
        frames.drop(length)
        self.transport.write(rest)
        if self.buffered is not None and self.buffered() > OUT_FULL:
            self.congested = True
        return 0

    cdef ssize_t send_message(
            self, const uint8_t* head, size_t head_length, Buffer frames) noexcept:
        """One message in one system call. Returns how many bytes of head and frames are sent."""
        cdef iovec[2] parts
        cdef msghdr message
        memset(&message, 0, sizeof(msghdr))
        parts[0].iov_base, parts[0].iov_len = <void*> head, head_length
        parts[1].iov_base, parts[1].iov_len = frames.data, frames.length
        message.msg_iov, message.msg_iovlen = parts, 2
        return c_sendmsg(self.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)

    # -- bodies that are not copied ----------------------------------------------------------------

    cdef bint passes(self, uint32_t length) noexcept:
        """Whether the socket gets a body of this length, in one frame, from where it lies."""
        return (PASSED_FROM <= length <= self.frame_max - 8 and self.fd >= 0
                and not (self.in_messages or self.closed or self.congested or self.end_follows)
                and self.large is None)

    cdef int pass_body(self, const uint8_t* body, uint32_t length) except -1:
        """Writes what has gathered, the last of which is a body frame's first seven bytes, then the
        body and the frame's end. What the socket does not take is copied."""
        cdef uint8_t end = 0xCE
        cdef iovec[3] parts
        cdef msghdr message
        cdef Buffer out = self.out
        cdef size_t all_bytes = out.length + length + 1
        cdef ssize_t sent
        cdef bytes rest
        memset(&message, 0, sizeof(msghdr))
        parts[0].iov_base, parts[0].iov_len = out.data, out.length
        parts[1].iov_base, parts[1].iov_len = <void*> body, length
        parts[2].iov_base, parts[2].iov_len = &end, 1
        message.msg_iov, message.msg_iovlen = parts, 3
        self.send_oct += all_bytes
        self.send_cnt += 1
        self.owner.stirs = True
        self.passed += all_bytes
        sent = max(<ssize_t> 0, c_sendmsg(self.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL))
        if <size_t> sent == all_bytes:
            out.drop(out.length)
            return 0
        if <size_t> sent < out.length:
            rest = out.data[sent:out.length] + body[:length] + b"\xce"
        else:
            rest = body[sent - out.length:length] + b"\xce"
        out.drop(out.length)
        self.transport.write(rest)
        return 0

    # -- large contents ----------------------------------------------------------------------------

    cdef bint is_full(self) noexcept:
        """Whether what is written waits for the client, so that no more deliveries are."""
        return (self.congested or self.large is not None
                or self.out.length + self.passed > OUT_FULL)

    cdef size_t unwritten(self) noexcept:
        """Bytes that the transport does not have yet."""
        cdef size_t found = self.out.length
        cdef LargeContent content
        if self.large is not None:
            for content in self.large:
                found += content.left()
        return found

    cdef int add_large(self, LargeBody body, uint16_t channel) except -1:
        """The body of the content whose header is the last in `out`. Its frames are made as the
        client takes them; what is added to `out` from now on follows them."""
        cdef LargeContent content = LargeContent()
        content.frames = self.out
        content.body = body
        content.channel = channel
        if self.large is None:
            self.large = deque()
        self.large.append(content)
        self.out = Buffer()
        return 0

    cdef int write_large(self) except -1:
        """Writes the next part of the first large content. One part in a turn: others have theirs
        between two."""
        cdef LargeContent content = self.large[0]
        content.frame(self.frame_max)
        self.hand_over(content.frames)
        if content.left() == 0:
            self.large.popleft()
            if not self.large:
                self.large = None
                if not self.congested:
                    self.owner.uncongested()
        if self.large is not None and not self.congested:
            self.touch()
        return 0

    cdef int cut_large(self) except -1:
        """The connection ends: what is left of large bodies is not written any more."""
        cdef Buffer rest
        cdef LargeContent content
        if self.large is None:
            return 0
        rest = self.out
        self.out = Buffer()
        for content in self.large:
            self.out.add(content.frames.data, content.frames.length)
        self.out.add(rest.data, rest.length)
        self.large = None
        return 0

    def send(self, bytes data):
        """Adds whole frames, which leave at the end of the turn."""
        if not self.closed:
            self.out.add(<char*> data, len(data))
            self.touch()

    def send_large(self, bytes data, LargeBody body, uint16_t channel):
        """Adds whole frames and, behind them, the body of the content whose header is the last."""
        if not self.closed:
            self.out.add(<char*> data, len(data))
            self.add_large(body, channel)
            self.touch()

    def end_writing(self):
        """Writes all data, also to a transport that is full, and then ends the writing side. The
        transport still reads."""
        cdef uint8_t head[MESSAGE_HEAD]
        cdef bytes rest
        self.cut_large()
        if self.congested:
            self.write_confirms()
            rest = self.out.data[:self.out.length]
            self.out.drop(self.out.length)
            self.send_oct += len(rest)
            if rest and self.in_messages:
                rest = head[:message_head(head, len(rest))] + rest
            if rest:
                self.transport.write(rest)
        else:
            # One packet, and one wake of the client, for the last frames and the end.
            self.end_follows = MSG_MORE
            self.work()
        self.closed = True
        try:
            self.transport.write_eof()
        except OSError:
            # The client has reset the connection: its end is about to be reported.
            pass

    def pause_writing(self):
        """The transport has not got rid of everything: no more deliveries for now."""
        self.congested = True

    def writable(self):
        """The transport takes bytes again."""
        if self.congested:
            self.congested = False
            self.owner.uncongested()
            self.touch()

    cdef int close(self) except -1:
        """The transport is closed: nothing is written to it any more."""
        self.closed = True
        self.large = None
        self.owner = OutputOwner()
        return 0
