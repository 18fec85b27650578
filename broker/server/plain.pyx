# cython: language_level=3
"""Plain sockets of AMQP connections, from `accept` to `close`, beside asyncio.

What asyncio does for each client (a task, a future, a socket object, two dozen callbacks, three
turns of the loop) takes half of what opening and closing a connection costs. Here an accepted
descriptor becomes a `PlainSocket`, which is to its connection what a transport of asyncio is, and
the loop's own selector tells it of ends, errors and room to write (`sockets.pyx`).
"""

import logging
import os
import socket

from libc.errno cimport (
    EAGAIN, ECONNABORTED, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC, errno,
)
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset
from posix.unistd cimport close as c_close

from broker.kernel.octets cimport Octets, writable_octets
from broker.kernel.turn cimport Turn
from broker.wire.frame_parser cimport FrameParser


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    #include <sys/epoll.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <arpa/inet.h>
    """
    ctypedef uint32_t socklen_t
    struct sockaddr:
        pass
    struct in_addr:
        pass
    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    struct sockaddr_storage:
        uint16_t ss_family
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int accept4(int fd, sockaddr* address, socklen_t* length, int flags) nogil
    int setsockopt(int fd, int level, int name, const void* value, socklen_t length) nogil
    int getsockopt(int fd, int level, int name, void* value, socklen_t* length) nogil
    int getsockname(int fd, sockaddr* address, socklen_t* length) nogil
    int shutdown(int fd, int how) nogil
    ssize_t recv(int fd, void* data, size_t length, int flags) nogil
    ssize_t send(int fd, const void* data, size_t length, int flags) nogil
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) nogil
    const char* inet_ntop(int family, const void* source, char* text, socklen_t size) nogil
    uint16_t ntohs(uint16_t number) nogil
    int SOL_SOCKET, SO_RCVBUF, SO_RCVLOWAT, IPPROTO_TCP, TCP_CONGESTION, TCP_INFO
    int AF_INET, AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SHUT_WR, MSG_DONTWAIT, MSG_NOSIGNAL
    int EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD
    uint32_t EPOLLIN, EPOLLOUT


log = logging.getLogger("leveret.connection")

cdef enum:
    ACCEPTED_AT_ONCE = 16        # sockets a listener takes in a turn; others have theirs between
    # In struct tcp_info, in words.
    PACKETS_AT = 38              # tcpi_data_segs_in
    OFFERED_AT = 58              # tcpi_rcv_wnd, since Linux 6.2
    END_NS = 30000               # what the end of a socket takes of a turn, at least
    # Octets of the shortest frame that says anything. A heartbeat has fewer, and so has a body
    # frame that is empty, which completes nothing.
    MORE_THAN_BEAT = 9
    BEATS = 64                   # octets that are received when they are looked for
    SO_BUF_LOCK = 72             # since Linux 5.14; older headers of libc do not have it

RETRY_S = 1.0
"""Until a listener looks again that found no descriptor or no memory for a client."""
NO_GOODBYE = "client unexpectedly closed TCP connection"
_UNIX = ("unix", 0)
cdef bytes UNPACED = b"reno"


cdef tuple address_of(sockaddr_storage* address, int fd, bint of_peer):
    """(address, port) of an end of this socket."""
    cdef char text[64]
    cdef sockaddr_in* four = <sockaddr_in*> address
    if address.ss_family == AF_INET:
        inet_ntop(AF_INET, &four.sin_addr, text, 64)
        return (<bytes> <const char*> text).decode("ascii"), ntohs(four.sin_port)
    if address.ss_family == AF_UNIX:
        return _UNIX
    # Version 6, with names of interfaces where there are any.
    same = socket.socket(fileno=fd)
    try:
        return (same.getpeername() if of_peer else same.getsockname())[:2]
    finally:
        same.detach()


cdef void bound_receiving(int fd, int size) noexcept:
    """As `rests.bound_receiving`."""
    if size:
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size))


cdef void receive_freely(int fd) noexcept:
    """As `rests.receive_freely`."""
    cdef int unlocked = 0
    setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &unlocked, sizeof(unlocked))


cdef void send_unpaced(int fd) noexcept:
    """As `entrance.send_unpaced`."""
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, <const char*> UNPACED, len(UNPACED))


cdef class PlainSocket:
    """One accepted socket. Towards its connection it has what a transport of asyncio has, as far as
    connections use it."""

    cdef object broker
    cdef Turn turn
    cdef FrameParser connection
    cdef bytearray unsent            # what the kernel did not take yet
    cdef int epoll
    cdef int fd                      # -1: closed
    cdef uint32_t events             # of epoll, that are waited for; 0: it is not registered
    cdef bint closing
    cdef bint is_ending              # its end is on its way, and nothing is read or written
    cdef bint unread                 # the connection reads no more for now
    cdef bint rests                  # it is not read for some milliseconds
    cdef bint is_tcp                 # and not of the Unix domain
    cdef readonly int receive_size   # what its receive buffer is bound to; 0: it does not rest
    cdef bint is_free                # that may grow
    cdef bint has_end                # nothing follows: its end waits for a turn with time for it
    cdef bint says_end               # nothing is written behind what is unsent

    def __init__(self, broker, int fd):
        self.broker = broker
        self.turn = broker.turn
        self.epoll = broker.sockets.epoll
        self.fd = fd
        self.unsent = bytearray()

    cdef int begin(self, FrameParser connection) except -1:
        """From now on what comes goes to the connection."""
        self.connection = connection
        self.broker.sockets.watch(self.fd, connection, self)
        return self.listen()

    cdef int listen(self) except -1:
        """Waits for what is of interest now."""
        cdef epoll_event event
        cdef uint32_t wanted = 0
        cdef int operation
        if self.fd < 0:
            return 0
        if not (self.unread or self.rests or self.closing or self.has_end):
            wanted |= EPOLLIN
        if self.unsent and not self.is_ending:
            wanted |= EPOLLOUT
        if wanted == self.events:
            return 0
        operation = (EPOLL_CTL_DEL if not wanted
                     else EPOLL_CTL_MOD if self.events else EPOLL_CTL_ADD)
        event.events = wanted
        event.data.fd = self.fd
        if epoll_ctl(self.epoll, operation, self.fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        self.events = wanted
        return 0

    def begin_rest(self):
        """What comes stays in the kernel for now (`coalescing.pyx`)."""
        self.rests = True
        self.listen()

    def end_rest(self):
        self.rests = False
        self.listen()

    def bound_receiving(self, int size, bint may_grow):
        """As of `rests.py`."""
        if self.fd >= 0:
            bound_receiving(self.fd, size or self.receive_size)
            if may_grow and self.is_free:
                receive_freely(self.fd)

    def receive_freely(self):
        """As of `rests.py`."""
        if self.receive_size and self.fd >= 0:
            self.is_free = True
            receive_freely(self.fd)

    def counted(self):
        """As of `rests.py`."""
        cdef uint32_t info[OFFERED_AT + 1]
        cdef socklen_t length = sizeof(info)
        memset(info, 0, sizeof(info))
        if self.fd >= 0:
            getsockopt(self.fd, IPPROTO_TCP, TCP_INFO, info, &length)
        return info[OFFERED_AT], info[PACKETS_AT]

    def ready(self, uint32_t events):
        """The selector saw more than bytes to receive, or an end among them."""
        if self.fd < 0 or self.is_ending:
            return
        if self.connection.is_quiet:
            self.listen_closely()
        if self.events & EPOLLIN and events & ~EPOLLOUT:
            self.receive()
        if self.events & EPOLLOUT and events & ~EPOLLIN and not self.is_ending:
            self.write_rest()

    def listen_quietly(self):
        """The client has sent nothing but heartbeats for a while: takes what has come. From now on
        a heartbeat alone does not wake the loop, which is most of what an idle connection costs.
        Until the next call it waits in the kernel."""
        cdef uint8_t came[BEATS]
        cdef ssize_t got
        if (not self.is_tcp or self.unread or self.rests or self.closing or self.has_end
                or self.fd < 0):
            return
        got = recv(self.fd, came, BEATS, MSG_DONTWAIT)
        if got > 0:
            self.connection.receive(came, got)
        # An end or an error is seen by the selector. And the rest of a frame may be as short as a
        # heartbeat.
        if self.fd < 0 or self.is_ending:
            return
        if not self.connection.is_between_frames():
            self.listen_closely()
        elif not self.connection.is_quiet:
            self.connection.is_quiet = True
            self.wake_from(MORE_THAN_BEAT)

    def listen_closely(self):
        """Something has come: each octet wakes the loop again."""
        self.connection.is_quiet = False
        self.wake_from(1)

    cdef void wake_from(self, int least) noexcept:
        """How many octets have to wait in the kernel before the socket is readable."""
        setsockopt(self.fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least))

    cdef int receive(self) except -1:
        cdef Octets buffer = writable_octets(self.broker.receive_buffer)
        cdef size_t most = min(self.turn.offer(), buffer.length)
        cdef ssize_t got = recv(self.fd, buffer.data, most, MSG_DONTWAIT)
        cdef uint64_t before
        if got > 0:
            before = self.broker.persister.tail_bytes
            self.connection.receive(buffer.data, got)
            self.broker.pressure.limit(self.connection, before)
        elif got == 0:
            self.at_end()
        elif errno != EAGAIN and errno != EINTR:
            self.end(os.strerror(errno), errno)
        return 0

    cdef int at_end(self) except -1:
        """The client has closed its side. Hundreds may leave in one turn."""
        if self.turn.is_late():
            self.has_end = True
            self.listen()
            self.turn.wait_in_line(self.leave)
            return 0
        self.turn.taken_ns += END_NS
        self.turn.wake()
        return self.end(None, 0)

    def leave(self):
        """The end, in a turn that has time for it."""
        if not self.closing:
            self.end(None, 0)

    cdef int end(self, reason, int number) except -1:
        """Closes the socket and tells the connection, with what the system says if it failed."""
        cdef int fd = self.fd
        cdef FrameParser connection = self.connection
        if fd < 0:
            return 0
        self.closing = self.is_ending = True
        self.fd = -1
        self.unsent = bytearray()
        self.connection = None        # which refers to this
        self.broker.sockets.forget(fd)
        self.broker.admission.give()
        connection.output.fd = -1
        try:
            connection.lost(NO_GOODBYE if reason is None else f"[Errno {number}] {reason}")
        finally:
            c_close(fd)
        return 0

    def _end_later(self, reason, int number):
        self.end(reason, number)

    cdef int end_soon(self, reason, int number) except -1:
        """The same, but in a turn to come: the connection is at work."""
        if not self.is_ending:
            self.closing = self.is_ending = True
            self.unsent = bytearray()
            self.listen()
            self.broker.loop.call_soon(self._end_later, reason, number)
        return 0

    # -- what connections ask of a transport -------------------------------------------------------

    def is_closing(self):
        return self.closing

    def get_write_buffer_size(self):
        return len(self.unsent)

    def pause_reading(self):
        self.unread = True
        if not self.closing:
            self.listen()

    def resume_reading(self):
        self.unread = False
        if not self.closing:
            self.listen()

    def write(self, bytes data):
        cdef ssize_t sent = 0
        if self.is_ending or not data:
            return
        if not self.unsent:
            sent = send(self.fd, <const char*> data, len(data), MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0:
                if errno != EAGAIN and errno != EINTR:
                    self.end_soon(os.strerror(errno), errno)
                    return
                sent = 0
            if sent == len(data):
                return
        self.unsent += data[sent:]
        self.listen()
        self.connection.pause_writing()

    cdef int write_rest(self) except -1:
        cdef ssize_t sent = send(
            self.fd, <const char*> self.unsent, len(self.unsent), MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self.end(os.strerror(errno), errno)
            return 0
        del self.unsent[:sent]
        if self.unsent:
            return 0
        self.connection.writable()   # which may write more
        if not self.unsent and self.fd >= 0 and not self.is_ending:
            self.listen()
            if self.closing:
                self.end(None, 0)
            elif self.says_end:
                shutdown(self.fd, SHUT_WR)
        return 0

    def write_eof(self):
        if self.closing or self.says_end:
            return
        self.says_end = True
        if not self.unsent and shutdown(self.fd, SHUT_WR) < 0:
            raise OSError(errno, os.strerror(errno))

    def close(self):
        """Closes the socket when all is sent."""
        if not self.closing:
            self.closing = True
            if self.unsent:
                self.listen()
            else:
                self.end_soon(None, 0)

    def abort(self):
        """Closes the socket."""
        self.end_soon(None, 0)


cdef class PlainListener:
    """A listening socket, `sock`, whose clients get connections of `listener` (amqp or unix). Those
    from trusted proxies are given to `proxied(socket)`."""

    cdef object broker
    cdef object sock
    cdef str listener
    cdef object proxied
    cdef tuple local                 # where all clients arrive; None: it is asked for each
    cdef int fd
    cdef int burst                   # clients that are accepted at the next look

    def __init__(self, broker, sock, str listener, proxied=None):
        self.broker = broker
        self.sock = sock
        self.listener = listener
        self.proxied = proxied
        self.fd = sock.fileno()
        self.burst = 1
        if sock.family == socket.AF_UNIX:
            self.local = _UNIX
        elif sock.family == socket.AF_INET and sock.getsockname()[0] != "0.0.0.0":
            self.local = sock.getsockname()[:2]
        broker.sockets.watch(self.fd, self.accept)
        self.serve()

    def serve(self):
        """Clients are accepted from now on."""
        if self.fd >= 0:
            self.broker.loop.add_reader(self.fd, self.accept)

    def close(self):
        """No more are; who is connected stays."""
        if self.fd >= 0:
            self.broker.loop.remove_reader(self.fd)
            self.broker.sockets.forget(self.fd)
            self.sock.close()
            self.fd = -1

    def accept(self):
        """Takes the clients that wait, some at a time. Most come alone: first it asks for one."""
        cdef sockaddr_storage address
        cdef socklen_t length
        cdef int fd, _place
        for _place in range(self.burst):
            length = sizeof(sockaddr_storage)
            fd = accept4(self.fd, <sockaddr*> &address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if fd < 0:
                self.burst = 1
                self.failed(errno)
                return
            try:
                self.enter(fd, &address)
            except OSError as error:
                self.failed(error.errno)
                return
        self.burst = min(2 * self.burst, ACCEPTED_AT_ONCE)

    cdef int failed(self, int error) except -1:
        """No client, or one that cannot be had."""
        if error == EAGAIN or error == EINTR or error == ECONNABORTED:
            return 0
        if error not in (EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC):
            raise OSError(error, os.strerror(error))
        # The socket stays readable all the while.
        log.error("cannot accept a client: %s; the next look is in %g s",
                  os.strerror(error), RETRY_S)
        self.broker.loop.remove_reader(self.fd)
        self.broker.loop.call_later(RETRY_S, self.serve)
        return 0

    cdef int enter(self, int fd, sockaddr_storage* address) except -1:
        """A client has come."""
        cdef sockaddr_storage own
        cdef socklen_t length = sizeof(sockaddr_storage)
        cdef PlainSocket transport = None
        cdef tuple peer
        cdef tuple local = self.local
        cdef int size = 0
        try:
            peer = address_of(address, fd, True)
            if local is None:
                getsockname(fd, <sockaddr*> &own, &length)
                local = address_of(&own, fd, False)
        except OSError:
            c_close(fd)               # gone before it was looked at
            return 0
        if self.proxied is not None and peer[0] in self.broker.proxies:
            self.proxied(socket.socket(fileno=fd))
            return 0
        if not self.broker.admission.take(fd):
            c_close(fd)
            return 0
        if peer[0] == local[0] and address.ss_family != AF_UNIX:
            size = self.broker.config.local_receive_buffer
            bound_receiving(fd, size)
            send_unpaced(fd)
        try:
            transport = PlainSocket(self.broker, fd)
            transport.receive_size = size
            transport.is_tcp = address.ss_family != AF_UNIX
            transport.begin(self.broker.accept(transport, peer, local, self.listener, fd))
        except BaseException:
            if transport is not None and transport.connection is not None:
                # It has a timer, which would close this number later, whatever it is by then.
                transport.end(None, 0)
            else:
                self.broker.admission.give()
                c_close(fd)
            raise
        return 0
