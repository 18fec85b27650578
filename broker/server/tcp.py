"""AMQP over TLS, and over TCP and Unix sockets where the loop does not accept them itself
(`plain.pyx`): asyncio's transports around `Connection`.

All connections are received into one buffer: a chunk is taken apart before the next one is read, so
an idle connection owns none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.process.garbage import release
from broker.server import proxy_protocol
from broker.server.entrance import Origin

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.wire.connection import Connection

RECEIVE_BYTES = 256 * 1024
END_NS = 30_000
"""What the end of a socket takes of a turn, at least: hundreds of clients may leave in one."""
NO_GOODBYE = "client unexpectedly closed TCP connection"


class SocketProtocol(asyncio.BufferedProtocol):
    """One accepted socket, or the plain side of one with TLS. `listener` is amqp, amqps or
    unix."""

    __slots__ = ("_broker", "_connection", "_listener", "_origin")

    def __init__(self, broker: Broker, listener: str, origin: Origin) -> None:
        self._broker = broker
        self._listener = listener
        self._origin = origin
        self._connection: Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Whatever the kernel does not take at once has to be known: then nothing more is delivered.
        transport.set_write_buffer_limits(high=0)  # type: ignore[attr-defined]
        secure = self._listener == "amqps"
        fd = -1 if secure else transport.get_extra_info("socket").fileno()
        self._connection = self._broker.accept(
            transport,
            self._origin.peer,
            self._origin.local,
            self._listener,
            fd=fd,
            tls=transport if secure else None,
            proxied=self._origin.proxied,
        )
        if not secure:
            self._broker.sockets.watch(fd, self._connection)
        del self._origin

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._broker.receive_buffer
        offered = self._broker.turn.offered
        return buffer[:offered] if sizehint < 0 and offered < RECEIVE_BYTES else buffer

    def buffer_updated(self, nbytes: int) -> None:
        before = self._broker.persister.tail_bytes
        self._connection.receive_buffer(self._broker.receive_buffer, nbytes)
        self._broker.pressure.limit(self._connection, before)

    def discard(self, nbytes: int) -> None:
        """What TLS does not decipher any more."""
        self._connection.discard(nbytes)

    def eof_received(self) -> bool:
        turn = self._broker.turn
        if turn.late:
            turn.next_in_line(self._leave)
            return True
        turn.spend(END_NS)
        turn.wake()
        return False

    def _leave(self) -> None:
        transport: Any = self._connection.transport
        if not transport.is_closing():
            self._connection.lost(NO_GOODBYE)
            transport.close()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.admission.give()
        self._broker.sockets.forget(self._connection.fd)
        self._connection.fd = -1
        if self._listener != "amqps":
            release(self._connection.transport)
        self._connection.lost(str(exc) if exc else NO_GOODBYE)


class RelayProtocol(asyncio.Protocol):
    """A browser's connection that the web process hands over: PROXY header first, then AMQP.
    Believed only on the private socket."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._head = b""
        self._connection: Connection | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self._connection is None:
            self._head += data
            try:
                parsed = proxy_protocol.parse(self._head)
            except proxy_protocol.ProxyError:
                self._transport.abort()
                return
            if parsed is None:
                return
            length, peer, local = parsed
            data, self._head = self._head[length:], b""
            self._connection = self._broker.accept(
                self._transport, peer or ("unix", 0), local or ("unix", 0), "ws"
            )
            if not data:
                return
        before = self._broker.persister.tail_bytes
        self._connection.feed(data)
        self._broker.pressure.limit(self._connection, before)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.admission.give()
        release(self._transport)
        if self._connection is not None:
            self._connection.lost(str(exc) if exc else NO_GOODBYE)
