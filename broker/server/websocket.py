"""AMQP over WebSocket (RFC 6455): a door like TCP, for browsers.

Any path; the sub-protocol is optional and echoed if it begins with `amqp`; binary messages only;
no compression, so nothing can be inflated before login. Towards the browser each write of the
broker, which is whole AMQP frames, is one message. What the browser sends may be cut anywhere.

Who has not signed in gets little: a bounded number of bytes and a bounded time. What comes is taken
apart in pieces (`broker.serving.websocket_intake`); a peer that does not take its pongs gets the
newest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from broker.process.garbage import release
from broker.serving import origins
from broker.serving.addresses import address_of
from broker.serving.websocket_intake import Allowance, Excess, Intake, Turns, is_empty
from broker.serving.websocket_room import REASON, message_max

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
_quiet.setLevel(logging.CRITICAL)  # handshakes that fail are anybody's noise


class WebSocketListener:
    """Keeps the doors of WebSocket connections, which hand each to the broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.doors: set[Door] = set()
        self.turns = Turns(lambda work: asyncio.get_running_loop().call_soon(work))
        self.room = broker.admission.websockets
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look at the clock."""
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def close(self) -> None:
        """Drop what the broker has not closed itself."""
        if self._timer is not None:
            self._timer.cancel()
        for door in list(self.doors):
            door.abort()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for door in list(self.doors):
            door.look_at_clock(now)
        self._timer = loop.call_later(TICK_S, self._tick)


class Door(asyncio.Protocol):
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
        self._intake = Intake(listener.turns, self._take, self._may_go_on, self._settle)
        self._hold = listener.room.hold(self._give_way, self._intake.go_on)
        self._address = ""
        self._request_end = b""
        self._connection: Any = None
        self._held: deque[bytes] = deque()
        self._paused = False
        self._feeding = False
        self._congested = False
        self._pong = b""  # of the newest ping, while the peer takes nothing
        self._lost_because: str | None = None
        self._heard_at = 0.0
        self._pinged_at = 0.0
        self._deadline = 0.0  # 0 is none

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._is_secure = transport.get_extra_info("ssl_object") is not None
        # Whatever the kernel does not take at once has to be known: then nothing more is delivered.
        transport.set_write_buffer_limits(high=0)
        self._address = address_of(transport.get_extra_info("peername")[0])
        self._heard_at = asyncio.get_running_loop().time()
        self._deadline = self._heard_at + self.broker.config.handshake_timeout
        self.listener.doors.add(self)

    def data_received(self, data: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self._allowance.signed_in = self._is_signed_in()
        try:
            self._allowance.spend(len(data))
        except Excess as excess:
            self._refuse(excess)
            return
        if self._socket.state is State.CONNECTING:
            data = self._take_request(data)
            if not data or self._connection is None:
                return
        if self._socket.close_sent is not None and self._connection is not None:
            self._connection.discard(len(data))
        self._intake.add(data)

    def eof_received(self) -> None:
        self._socket.receive_eof()
        self._take_events()
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.admission.give()
        self.listener.doors.discard(self)
        self._hold.clear()
        release(self._transport)
        self._lost_because = f"WebSocket: {exc}" if exc else "WebSocket closed by the peer"
        # Behind TLS the end may come together with bytes that are not taken apart yet.
        self._settle()

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
        """Send whole AMQP frames as one binary message."""
        if self._socket.state is State.OPEN:
            self._socket.send_binary(data)
            self._flush()

    def write_eof(self) -> None:
        """Send what was written, then our half of the closing handshake. What comes before the
        other half is thrown away; the broker drops a peer that takes too long."""
        if self._socket.state is State.OPEN:
            self._socket.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
            self._transport.resume_reading()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing() or self._socket.state is not State.OPEN

    def pause_reading(self) -> None:
        self._paused = True
        self._count()
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._feed()
        self._count()
        self._intake.go_on()

    def buffered(self) -> int:
        """Bytes that were written and not yet taken by the kernel."""
        return self._transport.get_write_buffer_size()

    # What the listener's clock calls.

    def look_at_clock(self, now: float) -> None:
        if self._deadline and now > self._deadline:
            self._transport.abort()
        elif self._socket.state is State.OPEN and not self._paused and not self._hold.waits:
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
        self._take_events()
        return data[size:]

    def _may_go_on(self) -> bool:
        if self._lost_because is not None:
            return not self._paused
        return not (self._paused or self._hold.waits or self._transport.is_closing())

    def _settle(self) -> None:
        """Reads on when everything that came is taken apart and the broker takes more."""
        if self._lost_because is not None:
            if self._paused or not len(self._intake):
                self._let_go(self._lost_because)
        elif self._paused or self._hold.waits or len(self._intake):
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _take(self, piece: bytearray) -> None:
        self._allowance.signed_in = self._is_signed_in()
        self._socket.receive_data(piece)
        self._take_events()
        self._count()

    def _count(self) -> None:
        """Tells the room what is held of messages that are not whole, or not fed yet."""
        if self._connection is None:
            self._hold.clear()
            return
        held = sum(map(len, self._held)) if self._held else 0
        self._hold.set(
            len(self._socket.reader.buffer) + held,
            self._connection.user or self._address,
            is_held_back=self._paused,
        )

    def _give_way(self) -> None:
        self._fail(CloseCode.TRY_AGAIN_LATER, REASON)
        self._end()

    def _take_events(self) -> None:
        now = time.monotonic()
        try:
            for event in self._socket.events_received():
                if isinstance(event, Request):
                    self._answer(event)
                elif isinstance(event, Frame):
                    self._allowance.take_frame(is_empty=is_empty(event), now=now)
                    self._take_frame(event)
        except Excess as excess:
            self._refuse(excess)
            return
        self._flush_answers()
        if self._socket.parser_exc is not None and not self._transport.is_closing():
            # The close frame with the reason is on its way; nothing more is read.
            self._end()

    def _take_frame(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            if frame.data and self._socket.close_sent is None:
                self._held.append(bytes(frame.data))
                self._feed()
        elif frame.opcode is Opcode.TEXT:
            self._fail(CloseCode.UNSUPPORTED_DATA, "AMQP is binary")
        elif frame.opcode is Opcode.CLOSE:
            self._flush()
            self._end()

    def _feed(self) -> None:
        """Hand over in order; what comes while the broker takes no more stays here."""
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._held and not self._paused and self._connection is not None:
                self._connection.feed(self._held.popleft())
                if self.broker.persister.under_pressure and self._connection is not None:
                    self.broker.pause(self._connection)
        finally:
            self._feeding = False

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
            tls=self._transport if self._is_secure else None,
        )

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

    def _fail(self, code: CloseCode, reason: str) -> None:
        if self._socket.state is State.OPEN:
            self._socket.fail(code, reason)
            self._flush()
        self._deadline = asyncio.get_running_loop().time() + CLOSE_PATIENCE_S
        self._let_go(f"WebSocket: {reason}")

    def _end(self) -> None:
        """Closes when everything is sent, or when the peer does not take it for some seconds."""
        self._intake.clear()
        self._deadline = asyncio.get_running_loop().time() + CLOSE_PATIENCE_S
        self._transport.close()

    def _let_go(self, reason: str) -> None:
        """Tells the broker, once, that this connection is over."""
        self._intake.clear()
        self._held.clear()
        self._hold.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.lost(reason)
        if self._lost_because is not None:
            self._intake.release()

    def _flush_answers(self) -> None:
        """Sends what the frames that came are answered. While the peer takes nothing these are
        pongs, of which the newest is enough (RFC 6455, section 5.5.3)."""
        if self._congested and self._socket.state is State.OPEN:
            for data in self._socket.data_to_send():
                self._pong = data
        else:
            self._flush()

    def _flush(self) -> None:
        if self._lost_because is not None:
            return
        for data in self._socket.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof() and not self._transport.is_closing():
                self._transport.write_eof()


def _header(request: Request, name: str) -> str:
    """The one value of a header; several count as a malformed one."""
    values = request.headers.get_all(name)
    return values[0] if len(values) == 1 else " ".join(values)


def _select_subprotocol(
    protocol: ServerProtocol, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    return next((name for name in offered if name.lower().startswith("amqp")), None)
