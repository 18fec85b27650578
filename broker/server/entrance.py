"""What every accepted socket passes before its protocol: is there room, whose is it, is it TLS.

An `Entrance` lives for the moment of accepting, a `ProxyHeader` until its header has come; then
each gives the transport to what stands behind it and is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.server import proxy_protocol
from broker.server.rests import bound_receiving
from broker.server.tls import TLSProtocol

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.connection")


class Origin(NamedTuple):
    """Where a connection comes from. `proxied` means that a proxy said so: then no address counts
    as this machine's own."""

    peer: tuple[str, int]
    local: tuple[str, int]
    proxied: bool = False


MakeProtocol = Callable[[Origin], Any]
"""The protocol for a connection: a protocol, plain or buffered."""


class Entrance(asyncio.Protocol):
    """Takes a socket in. `secure` listeners speak TLS; `believes` ones take PROXY headers."""

    def __init__(
        self,
        broker: Broker,
        make_protocol: MakeProtocol,
        *,
        secure: bool = False,
        believes: bool = False,
    ) -> None:
        self._broker = broker
        self._make_protocol = make_protocol
        self._secure = secure
        self._believes = believes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        broker = self._broker
        sock = transport.get_extra_info("socket")
        if not broker.admission.take(sock.fileno()):
            transport.close()
            return
        if sock.family == socket.AF_UNIX:
            origin = Origin(("unix", 0), ("unix", 0))
        else:
            set_options(sock, broker.config.tcp_keepalive, broker.config.send_timeout)
            peername = transport.get_extra_info("peername")
            if not peername:  # gone before it was looked at
                broker.admission.give()
                transport.close()
                return
            origin = Origin(peername[:2], transport.get_extra_info("sockname")[:2])
            if origin.peer[0] == origin.local[0]:
                bound_receiving(sock, broker.config.local_receive_buffer)
                send_unpaced(sock)
            if self._believes and origin.peer[0] in broker.proxies:
                header = ProxyHeader(broker, origin, self._go_in)
                transport.set_protocol(header)
                header.connection_made(transport)
                return
        self._go_in(transport, origin, b"")

    def _go_in(self, transport: Any, origin: Origin, rest: bytes) -> None:
        protocol = self._make_protocol(origin)
        if self._secure:
            protocol = TLSProtocol(self._broker, protocol, origin.peer[0])
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if not rest:
            return
        if isinstance(protocol, asyncio.BufferedProtocol):
            memoryview(protocol.get_buffer(len(rest)))[: len(rest)] = rest
            protocol.buffer_updated(len(rest))
        else:
            protocol.data_received(rest)


HEAD_AT_ONCE = 4096
"""Bytes received at a time while the header is expected: what comes behind it is taken apart in the
same call, beside those of others."""


class ProxyHeader(asyncio.BufferedProtocol):
    """Reads the header that a trusted proxy has to send first."""

    def __init__(
        self, broker: Broker, origin: Origin, go_in: Callable[[Any, Origin, bytes], None]
    ) -> None:
        self._broker = broker
        self._origin = origin
        self._go_in = go_in
        self._head = b""
        self._transport: Any = None
        self._timer: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._timer = self._broker.later(
            self._broker.config.handshake_timeout, self._transport.abort
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._broker.receive_buffer[:HEAD_AT_ONCE]

    def buffer_updated(self, nbytes: int) -> None:
        self._head += bytes(self._broker.receive_buffer[:nbytes])
        try:
            parsed = proxy_protocol.parse_any(self._head)
        except proxy_protocol.ProxyError as error:
            log.warning("proxy %s: %s", self._origin.peer[0], error)
            self._transport.abort()
            return
        if parsed is None:
            return
        self._timer.cancel()
        length, peer, local = parsed
        origin = Origin(peer or self._origin.peer, local or self._origin.local, True)
        self._go_in(self._transport, origin, self._head[length:])

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._broker.admission.give()


ACCEPTED_AT_ONCE = 4
"""Sockets a listener takes in a turn of the loop. asyncio makes a task, a transport and a protocol
of each: up to sixteen at a time were a large part of turns of 9 to 15 ms."""


def let_wait(server: asyncio.Server, backlog: int) -> None:
    """Sets how many connections may wait to be accepted by a server that was opened with
    `ACCEPTED_AT_ONCE` as its backlog, which is how many asyncio takes in a turn."""
    for listener in server.sockets:
        with socket.socket(fileno=os.dup(listener.fileno())) as same:
            same.listen(backlog)


def send_unpaced(sock: socket.socket) -> None:
    """For a client of the same machine: nothing gets lost on its way that the congestion control
    could avoid, but `bbr` paces with timers and small bursts. `reno`, which each system has and
    each user may choose, does not."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def bound_segments(server: asyncio.Server, size: int) -> None:
    """Has the clients that come send TCP segments of at most `size` bytes; 0: as large as their
    network lets them be, which on the same machine is 64 KiB."""
    for listener in server.sockets:
        with socket.socket(fileno=os.dup(listener.fileno())) as same:
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, size)


def set_options(sock: Any, keepalive: tuple[int, ...], send_timeout: float) -> None:
    """No delay; keepalive probes to a silent peer: seconds before the first, seconds between them
    and their number, the system's own if empty; and the end of a connection whose peer takes
    nothing for `send_timeout` seconds."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(send_timeout * 1000))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if keepalive:
        idle, interval, count = keepalive
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)
