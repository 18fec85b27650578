"""AMQP over WebSocket (RFC 6455): like TCP, for browsers.

Any path; the sub-protocol is optional and echoed if it begins with `amqp`; binary messages only;
no compression, so nothing can be inflated before login. Towards the browser each write of the
broker, which is whole AMQP frames, is one message. What the browser sends may be cut anywhere.

Handshake, pings of ours and closing are the `websockets` library's. Data never passes through it:
the browser's frames are taken apart where they were received (`broker.serving.websocket_frames`),
the broker's get their head when they are written (`broker.wire.output`).

Who has not signed in gets little: a bounded number of bytes and a bounded time. A peer that does
not take its pongs gets the newest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from broker.process.garbage import release
from broker.server.rests import Rests
from broker.server.sockets import Receiver
from broker.serving import origins
from broker.serving.websocket_frames import FrameReader
from broker.serving.websocket_intake import Allowance, Excess
from broker.serving.websocket_room import message_max

if TYPE_CHECKING:
    from websockets.typing import Subprotocol

    from broker.server.app import Broker

log = logging.getLogger(__name__)

PING_AFTER_S = 20.0
GONE_AFTER_S = 60.0
CLOSE_PATIENCE_S = 5.0
TICK_S = 1.0
REQUEST_END = b"\r\n\r\n"

_quiet = logging.getLogger(f"{__name__}.protocol")
_quiet.setLevel(logging.CRITICAL)  # a failed handshake is no fault of the broker


class WebSocketListener:
    """Keeps the protocols of WebSocket connections, each of which hands one to the broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.protocols: set[WebSocketProtocol] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look at the clock."""
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def close(self) -> None:
        """Drop what the broker has not closed itself."""
        if self._timer is not None:
            self._timer.cancel()
        for protocol in list(self.protocols):
            protocol.abort()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for protocol in list(self.protocols):
            protocol.look_at_clock(now)
        self._timer = loop.call_later(TICK_S, self._tick)


class WebSocketProtocol(asyncio.BufferedProtocol):
    """One WebSocket connection: protocol towards asyncio, transport towards the broker."""

    def __init__(self, listener: WebSocketListener) -> None:
        self.listener = listener
        self.broker = listener.broker
        config = self.broker.config
        self._socket = ServerProtocol(
            select_subprotocol=_select_subprotocol,
            max_size=message_max(config),
            logger=_quiet,
        )
        self._allowance = Allowance(config.pre_login_bytes, config.ws_pings_max)
        self._reader = FrameReader(message_max(config))
        self._request_end = b""
        self._connection: Any = None
        self._fd = -1  # of a socket without TLS
        self._congested = False
        self._pong = b""  # of the newest ping, while the peer takes nothing
        self._lost = False
        self._heard_at = 0.0
        self._pinged_at = 0.0
        self._deadline = 0.0  # 0 is none

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._is_secure = transport.get_extra_info("ssl_object") is not None
        buffer = 0 if self._is_secure else self.broker.config.local_receive_buffer
        self._rests = Rests(transport, buffer)
        if not self._is_secure:
            # The loop receives without asyncio; under TLS it does that for `TLSProtocol`.
            self._fd = transport.get_extra_info("socket").fileno()
            receiver = Receiver(self.broker.receive_buffer, self, self._rests)
            self.broker.sockets.watch(self._fd, receiver)
        # Whatever the kernel does not take at once has to be known: then nothing more is delivered.
        transport.set_write_buffer_limits(high=0)
        self._heard_at = asyncio.get_running_loop().time()
        self._deadline = self._heard_at + self.broker.config.handshake_timeout
        self.listener.protocols.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self.broker.receive_buffer
        offered = self.broker.turn.offered
        return buffer[:offered] if sizehint < 0 and offered < len(buffer) else buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self._allowance.signed_in = self._is_signed_in()
        try:
            self._allowance.spend(nbytes)
        except Excess as excess:
            self._refuse(excess)
            return
        if self._socket.state is State.CONNECTING:
            buffer = self.broker.receive_buffer
            rest = self._take_request(bytes(buffer[:nbytes]))
            if self._connection is None:
                return
            nbytes = len(rest)
            buffer[:nbytes] = rest
        if nbytes:
            self._take(nbytes)

    def discard(self, nbytes: int) -> None:
        """What TLS does not decipher any more."""
        if self._connection is not None:
            self._connection.discard(nbytes)

    def eof_received(self) -> None:
        self._socket.receive_eof()
        self._flush()
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.sockets.forget(self._fd)
        self.broker.admission.give()
        self.listener.protocols.discard(self)
        release(self._transport)
        self._lost = True
        self._let_go(f"WebSocket: {exc}" if exc else "WebSocket closed by the peer")
        _release(self._socket)

    def pause_writing(self) -> None:
        self._congested = True
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._congested = False
        pong, self._pong = self._pong, b""
        if pong and self._socket.state is State.OPEN:
            self._transport.write(pong)
        if self._connection is not None:
            self._connection.writable()

    # What the broker calls.

    def write(self, data: bytes) -> None:
        """Sends what the socket did not take at once: of messages, which have their heads."""
        if self._socket.state is State.OPEN:
            self._transport.write(data)

    def write_eof(self) -> None:
        """Send what was written, then our half of the closing handshake. What comes before the
        other half is thrown away; the broker drops a peer that takes too long."""
        if self._socket.state is State.OPEN:
            self._socket.send_close(CloseCode.NORMAL_CLOSURE)
            if self._connection is not None:
                self._connection.fd = -1  # no data behind our close
            self._flush()
            self._transport.resume_reading()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing() or self._socket.state is not State.OPEN

    def pause_reading(self) -> None:
        self._rests.pause()

    def resume_reading(self) -> None:
        if self._rests.paused:
            # What the peer sent meanwhile, or was asked, was not heard.
            self._heard_at = asyncio.get_running_loop().time()
        self._rests.resume()

    def receive_freely(self) -> None:
        receiving: Any = self._transport if self._is_secure else self._rests
        receiving.receive_freely()

    def buffered(self) -> int:
        """Bytes that were written and not yet taken by the kernel."""
        return self._transport.get_write_buffer_size()

    # What the listener's clock calls.

    def look_at_clock(self, now: float) -> None:
        if self._deadline and now > self._deadline:
            self._transport.abort()
        elif self._socket.state is State.OPEN and not self._rests.paused:
            silent = now - self._heard_at
            if silent > GONE_AFTER_S:
                self._transport.abort()
            elif silent > PING_AFTER_S and now - self._pinged_at > PING_AFTER_S:
                self._pinged_at = now
                self._socket.send_ping(b"")
                self._flush()

    # How it works.

    def _is_signed_in(self) -> bool:
        return self._connection is not None and bool(self._connection.user)

    def _take_request(self, data: bytes) -> bytes:
        """Parse the opening request and answer it; returns what came after its end.

        Frames that came along must not be looked at before the answer is sent.
        """
        end = (self._request_end + data).find(REQUEST_END)
        size = len(data) if end < 0 else end + len(REQUEST_END) - len(self._request_end)
        self._request_end = (self._request_end + data)[-len(REQUEST_END) + 1 :]
        self._socket.receive_data(data[:size])
        for event in self._socket.events_received():
            if isinstance(event, Request):
                self._answer(event)
        self._flush()
        if self._socket.parser_exc is not None and not self._transport.is_closing():
            # What came is no opening request; the answer with the reason is on its way.
            self._end()
        return data[size:]

    def _take(self, nbytes: int) -> None:
        """Takes apart what was received, and hands its content to the broker."""
        reader = self._reader
        frames, empty = reader.frames, reader.empty
        content = reader.take(self.broker.receive_buffer, nbytes)
        try:
            self._allowance.take_frames(
                reader.frames - frames, reader.empty - empty, time.monotonic()
            )
        except Excess as excess:
            self._refuse(excess)
            return
        if content and self._connection is not None:
            self._hand_over(content)
        self._answer_ping()
        if reader.close is not None:
            self._socket.receive_data(reader.close)
            self._flush()
            self._end()
        elif reader.fault:
            self._fail(reader.fault, reader.reason)
            self._end()

    def _hand_over(self, content: int) -> None:
        if self._socket.state is not State.OPEN:  # our close is on its way
            self._connection.discard(content)
            return
        before = self.broker.persister.tail_bytes
        self._connection.receive_buffer(self.broker.receive_buffer, content)
        if self._connection is not None:
            self.broker.pressure.limit(self._connection, before)

    def _answer_ping(self) -> None:
        """While the peer takes nothing, the newest ping is enough to be answered (RFC 6455, section
        5.5.3)."""
        content = self._reader.take_ping()
        if content is None or self._socket.state is not State.OPEN:
            return
        self._socket.send_pong(content)
        if self._congested:
            self._pong = b"".join(self._socket.data_to_send())
        else:
            self._flush()

    def _answer(self, request: Request) -> None:
        peer = self._transport.get_extra_info("peername")
        refusal = self._refusal(request, peer[0])
        response = refusal or self._socket.accept(request)
        self._socket.send_response(response)
        self._flush()
        if response.status_code != 101:
            self._transport.close()
            return
        self._deadline = 0.0  # from here on the broker's own handshake timeout holds
        local = self._transport.get_extra_info("sockname")
        self._connection = self.broker.accept(
            self,
            peer[:2],
            local[:2],
            "wss" if self._is_secure else "ws",
            fd=self._fd,
            tls=self._transport if self._is_secure else None,
        )
        self._connection.write_messages()

    def _refusal(self, request: Request, peer: str) -> Response | None:
        config = self.broker.config
        host, origin = _header(request, "Host"), _header(request, "Origin")
        if not origins.host_accepted(host, peer, config.allowed_hosts):
            return self._socket.reject(421, "This name does not lead here; see allowed_hosts.\n")
        allowed = config.allowed_origins
        if not origins.origin_allowed(origin, host, secure=self._is_secure, allowed=allowed):
            return self._socket.reject(403, "This page's origin is not in allowed_origins.\n")
        return None

    def _refuse(self, excess: Excess) -> None:
        self._fail(CloseCode.POLICY_VIOLATION, str(excess))
        self._end()

    def _fail(self, code: int, reason: str) -> None:
        if self._socket.state is State.OPEN:
            self._socket.fail(code, reason)
            self._flush()
        self._deadline = asyncio.get_running_loop().time() + CLOSE_PATIENCE_S
        self._let_go(f"WebSocket: {reason}")

    def _end(self) -> None:
        """Closes when everything is sent, or when the peer does not take it for some seconds."""
        if self._connection is not None:
            self._connection.fd = -1  # no data behind our close
        self._deadline = asyncio.get_running_loop().time() + CLOSE_PATIENCE_S
        self._transport.close()

    def _let_go(self, reason: str) -> None:
        """Tells the broker, once, that this connection is over."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.fd = -1
            connection.lost(reason)

    def _flush(self) -> None:
        if self._lost:
            return
        for data in self._socket.data_to_send():
            if data:  # an empty one asks for the end, which `_end` comes to
                self._transport.write(data)


def _release(protocol: ServerProtocol) -> None:
    """Takes from a protocol that is over what refers to it: each would be garbage in a circle."""
    protocol.parser.close()
    kept = vars(protocol)
    for name in ("parser", "parser_exc", "handshake_exc", "select_subprotocol"):
        kept.pop(name, None)


def _header(request: Request, name: str) -> str:
    """The one value of a header; several count as a malformed one."""
    values = request.headers.get_all(name)
    return values[0] if len(values) == 1 else " ".join(values)


def _select_subprotocol(
    protocol: ServerProtocol, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    return next((name for name in offered if name.lower().startswith("amqp")), None)
