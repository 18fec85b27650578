# cython: language_level=3
"""The writing half of a connection: frames are collected here and written once per turn.

A plain socket is written to directly; only bytes that the kernel does not take at once go through
the transport, which then reports when it has sent them. Other transports (TLS, WebSocket) get whole
frames.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize

from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Confirmer
from broker.kernel.turn cimport Task, Turn


cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t length, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL


cdef class Output(Task):
    """Outgoing bytes of one connection. `transport` has `.write(bytes)` and `.close()`."""

    def __init__(self, Turn turn, transport, int fd=-1):
        self.out = Buffer()
        self.turn = turn
        self.transport = transport
        self.fd = fd
        # A transport that does not call `pause_writing` says how much it still holds.
        self.buffered = getattr(transport, "buffered", None)
        self.frame_max = 4096
        self.confirmers = []

    @property
    def send_pend(self):
        """Bytes that are written and that the socket has not taken yet."""
        waiting = self.buffered
        if waiting is None:
            waiting = getattr(self.transport, "get_write_buffer_size", None)
        return self.out.length + (waiting() if waiting is not None else 0)

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
        cdef ssize_t sent = 0
        cdef bytes rest
        if self.confirmers:
            self.write_confirms()
        length = self.out.length
        if length == 0 or self.closed or self.congested:
            return 0
        self.send_oct += length
        self.send_cnt += 1
        if self.fd >= 0:
            sent = c_send(self.fd, self.out.data, length, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0:
                sent = 0
            if <size_t> sent == length:
                self.out.drop(length)
                if length > OUT_FULL:
                    self.uncongested()
                return 0
        rest = PyBytes_FromStringAndSize(<char*> self.out.data + sent, length - sent)
        self.out.drop(length)
        self.transport.write(rest)
        if self.buffered is not None and self.buffered() > OUT_FULL:
            self.congested = True
        if length > OUT_FULL and not self.congested:
            # Queues had to stop in the middle because of what is now gone.
            self.uncongested()
        return 0

    def send(self, bytes data):
        """Adds whole frames, which leave at the end of the turn."""
        if not self.closed:
            self.out.add(<char*> data, len(data))
            self.touch()

    def end_writing(self):
        """Writes all data, also to a transport that is full, and then ends the writing side. The
        transport still reads."""
        cdef bytes rest
        if self.congested:
            self.write_confirms()
            rest = self.out.data[:self.out.length]
            self.out.drop(self.out.length)
            self.send_oct += len(rest)
            if rest:
                self.transport.write(rest)
        else:
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
            self.uncongested()
            self.touch()

    cdef int uncongested(self) except -1:
        return 0
