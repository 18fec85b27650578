"""WebSockets as uvicorn speaks them, with bounds for peers that mean harm.

A peer that sends nonsense ends its connection, no more. What comes is taken apart in pieces
(`broker.serving.websocket_intake`), and only as fast as the application takes it; the rest stays in
the socket. Binary data reaches the application as it comes, since AMQP does not care about
messages; text is gathered into its messages. Until the application says that the peer has signed in
(it calls what the extension `SIGNED_IN` of its scope holds), the peer may send `pre_login_bytes`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from broker.process.garbage import release
from broker.process.logs import one_line
from broker.serving.addresses import address_of
from broker.serving.websocket_intake import Allowance, Excess, Intake, Turns, is_empty
from broker.serving.websocket_room import REASON, Room
from management.paths import Scope
from management.peer import peer_of

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
    from websockets.http11 import Request

log = logging.getLogger(__name__)

REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)
SIGNED_IN = "leveret.signed_in"
"""Extension of a WebSocket's scope: a function of the longest message from now on, in bytes; None
leaves it as it is."""
WAITING_BYTES = 64 * 1024
"""With this number of bytes that the application has not taken, no more frames are parsed."""
WAITING_MESSAGES = 4
CLOSE_PATIENCE_S = 10.0


def signed_in(scope: Scope, message_max: int | None = None) -> None:
    """The peer of this WebSocket has signed in."""
    told = scope.get("extensions", {}).get(SIGNED_IN)
    if told is not None:
        told(message_max)


class PatientWebSocket(WebSocketsSansIOProtocol):
    """One connection of a browser."""

    turns: Turns | None = None
    room: Room | None = None
    transport: asyncio.Transport

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        config = settings.APPLIANCE
        if PatientWebSocket.turns is None:
            PatientWebSocket.turns = Turns(lambda work: asyncio.get_running_loop().call_soon(work))
        if PatientWebSocket.room is None:
            PatientWebSocket.room = Room(
                lambda: settings.APPLIANCE, asyncio.get_running_loop().call_later
            )
        self._allowance = Allowance(config.pre_login_bytes, config.ws_pings_max)
        self._intake = Intake(PatientWebSocket.turns, self._take, self._may_go_on, self._settle)
        self._hold = PatientWebSocket.room.hold(self._give_way, self._intake.go_on)
        self._address = ""
        self._binary: bytearray | None = None  # the queue's last message, while it may grow
        self._text = bytearray()
        self._texts: deque[int] = deque()  # sizes of those that wait in the queue
        self._after_close = config.close_discard_max
        self._pong = b""  # of the newest ping, while the peer takes nothing

    # What asyncio calls.

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if not self.handshake_initiated:
            # The request, whole, from `BoundedHTTP`; nothing comes with it.
            self._take(data)
            if self.conn.handshake_exc is not None and not self.handshake_initiated:
                # Longer lines or more headers than `websockets` takes: uvicorn would not answer.
                self.transport.write(REFUSAL)
                self.transport.close()
            return
        try:
            self._allowance.spend(len(data))
        except Excess as excess:
            self._refuse(excess)
            return
        if self.close_sent:
            self._after_close -= len(data)
            if self._after_close < 0:
                self.transport.abort()
                return
        self._intake.add(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._intake.clear()
        self._hold.clear()
        super().connection_lost(exc)
        release(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and not self.close_sent:
            self.transport.write(pong)

    # What uvicorn calls.

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            cast(dict[str, Any], self.scope["extensions"])[SIGNED_IN] = self._signed_in
            self._address = address_of(peer_of(cast(Scope, self.scope)))

    def handle_events(self) -> None:
        events, self.conn.events = self.conn.events, []
        now = time.monotonic()
        for event in events:
            if isinstance(event, Frame):
                try:
                    self._allowance.take_frames(1, is_empty(event), now)
                except Excess as excess:
                    self._refuse(excess)
                    return
            self.conn.events = [event]
            super().handle_events()

    def handle_text(self, event: Frame) -> None:
        self.curr_msg_data_type = "text"
        self._text = bytearray()
        self._add(event)

    def handle_bytes(self, event: Frame) -> None:
        self.curr_msg_data_type = "bytes"
        self._add(event)

    def handle_cont(self, event: Frame) -> None:
        self._add(event)

    def handle_ping(self) -> None:
        for data in self.conn.data_to_send():
            if self.writable.is_set():
                self.transport.write(data)
            else:
                # One for the newest ping is enough (RFC 6455, section 5.5.3).
                self._pong = data

    def keepalive_timeout(self) -> None:
        if len(self._intake) or self._hold.waits:
            # Its pong may lie behind what is not taken yet.
            self.pong_timer = self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if message.get("bytes") is self._binary:
            self._binary = None
        elif self._texts and message.get("text") is not None:
            self._texts.popleft()
        self._count()
        self._intake.go_on()
        return message

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.close" and self.close_timer is not None:
            # uvicorn would wait until everything is sent, however long the peer takes.
            self._abort_later()
        if message["type"] in ("websocket.accept", "websocket.close"):
            self._intake.go_on()

    # How it works.

    def _signed_in(self, message_max: int | None) -> None:
        self._allowance.signed_in = True
        if message_max is not None:
            self.conn.max_message_size = message_max

    def _may_go_on(self) -> bool:
        if self.transport.is_closing() or not self.handshake_complete:
            return False
        return self.close_sent or not (self._hold.waits or self._is_full())

    def _is_full(self) -> bool:
        """Whether the application has to take something first."""
        waiting = len(self._binary) if self._binary is not None else 0
        return waiting >= WAITING_BYTES or self.queue.qsize() >= WAITING_MESSAGES

    def _count(self) -> None:
        """Tells the room what is held of messages that are not whole, or not taken yet."""
        if self.close_sent or not self.handshake_complete:
            self._hold.clear()
            return
        waiting = len(self._binary) if self._binary is not None else 0
        self._hold.set(
            len(self.conn.reader.buffer) + len(self._text) + sum(self._texts) + waiting,
            self._address,
            is_held_back=self._is_full(),
        )

    def _settle(self) -> None:
        if len(self._intake) or self._hold.waits:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _take(self, piece: bytes | bytearray) -> None:
        try:
            super().data_received(cast(bytes, piece))
        except Exception as error:
            # uvicorn takes for granted what only well-formed frames and ASCII headers are.
            log.info("WebSocket of %s ended: %s", self.client, one_line(repr(error)))
            self.transport.abort()
        if self.transport.is_closing():
            self._abort_later()
        self._count()

    def _abort_later(self) -> None:
        """Ends the connection when the peer does not take the rest in time."""
        if self.close_timer is not None:
            self.close_timer.cancel()
        if not self.disconnected:
            self.close_timer = self.loop.call_later(CLOSE_PATIENCE_S, self.transport.abort)

    def _add(self, frame: Frame) -> None:
        """Hands over what a data frame brought: bytes at once, text with its last frame."""
        if self.close_sent:
            return
        if self.curr_msg_data_type == "text":
            self._text += frame.data
            if frame.fin:
                self.frames = [bytes(self._text)]
                self._texts.append(len(self._text))
                self._text = bytearray()
                self._binary = None
                self.send_receive_event_to_app()
        elif self._binary is not None:
            self._binary += frame.data
        elif frame.data:
            self._binary = bytearray(frame.data)
            self.queue.put_nowait({"type": "websocket.receive", "bytes": cast(bytes, self._binary)})

    def _give_way(self) -> None:
        self._refuse(Excess(REASON), CloseCode.TRY_AGAIN_LATER)

    def _refuse(self, excess: Excess, code: CloseCode = CloseCode.POLICY_VIOLATION) -> None:
        """Closes with a reason for the peer, and does not wait for its answer."""
        log.info("WebSocket of %s ended: %s", self.client, excess)
        self._intake.clear()
        if self.handshake_complete and not self.close_sent:
            self.conn.fail(code, str(excess))
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.queue.put_nowait(
                {
                    "type": "websocket.disconnect",
                    "code": code,
                    "reason": str(excess),
                }
            )
            self.transport.close()
            self._abort_later()
        else:
            self.transport.abort()
