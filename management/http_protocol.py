"""HTTP/1.1 as uvicorn speaks it, with bounds for peers that take their time or never end.

uvicorn waits for a request's head for ever and collects as much of it as comes. Here a head has
`http_timeout` seconds and `HEAD_MAX` bytes, and a socket that would take the process's last
descriptors is closed at once. What comes is parsed a piece at a time, in turn with other addresses
(`management.client_scheduler`); of requests that come before the answers to earlier ones a few are
parsed. A body waits unparsed until it is wanted (`management.bodies`). While something waits,
nothing is read; what was read counts as memory of its address (`management.unfinished`).
"""

import asyncio
import contextlib
import logging
import resource
import select
import socket
import time
from typing import Any

from django.conf import settings
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from broker.process.garbage import release
from broker.serving.addresses import address_of
from broker.settings.bounds import HEAD_MAX, HEADERS_MAX, REQUESTS_WAITING_MAX
from management.bodies import WIRE, Wire, announced
from management.client_scheduler import ADDRESS, scheduler_of
from management.seen import SEEN, Seen
from management.unfinished import STRANGERS

log = logging.getLogger(__name__)

PIECE = 64
"""Bytes that are parsed at a time: they hold four requests at most. What is left of a body of known
length is parsed at once."""
PIECES = 16
"""Of one request that are parsed in a step."""
BODY_READS = 4
"""How many times `http_read_size` is read at a time of a body that is wanted."""
SMALL = 4096
"""What a connection may hold without its being counted: less than its own objects take."""
NO_ROOM = (
    b"Requests of this address that are not finished take too much memory (http_unfinished_max);"
    b" try again\n"
)
DESCRIPTORS_KEPT = 100
"""For the control socket, files, and relayed connections on their way."""
SAID_EVERY_S = 10.0


class TooManyHeaders(ValueError):
    pass


class Room:
    """Whether there are descriptors left for one more socket; says now and then if not."""

    def __init__(self) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._last = limit - min(DESCRIPTORS_KEPT, limit // 4)
        self._refused = 0
        self._said_at = -SAID_EVERY_S

    def has(self, descriptor: int) -> bool:
        if descriptor < self._last:
            return True
        self._refused += 1
        now = time.monotonic()
        if now - self._said_at >= SAID_EVERY_S:
            log.warning("%d connections refused: the limit of open files", self._refused)
            self._said_at, self._refused = now, 0
        return False


def _cut_off_idle_readers(sock: socket.socket) -> None:
    """Has the kernel end the connection when its peer takes nothing for `http_write_timeout`, be it
    that it does not read or that it is not there any more."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        limit = int(settings.APPLIANCE.http_write_timeout * 1000)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)


def _keep_little(sock: socket.socket) -> None:
    """Bounds what the kernel takes of answers that the peer does not read: by itself it takes
    megabytes for each connection, and all of it has to be made."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.APPLIANCE.http_send_buffer)


class HeldFlow(FlowControl):
    """Reads nothing while it is held, also when `resume_reading` is called."""

    is_held = False

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class BoundedHTTP(HttpToolsProtocol):
    """One connection of a browser or an API client."""

    room: Room | None = None
    flow: HeldFlow

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        if BoundedHTTP.room is None:
            BoundedHTTP.room = Room()
        self._seen = Seen()
        self._wire = Wire(self._close, self._want_body)
        self._address = ""
        self._counted = 0
        self._between = True  # requests
        self._in_head = False
        self._head_bytes = 0
        self._got_more_time = False
        self._body_left = 0  # of the length that was announced
        self._unparsed = bytearray()
        self._parsing: asyncio.Handle | None = None  # waits for its turn
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = HeldFlow(transport)
        self._address = address_of(self.client[0] if self.client else "unix")
        sock = transport.get_extra_info("socket")
        assert self.room is not None
        if self.room.has(sock.fileno()):
            self._read_at_most(settings.APPLIANCE.http_read_size)
            _cut_off_idle_readers(sock)
            _keep_little(sock)
            self._await_head()
        else:
            transport.abort()

    def _read_at_most(self, size: int) -> None:
        if hasattr(self.transport, "max_size"):
            self.transport.max_size = size

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        self.flow.pause_reading()
        self.flow.is_held = True
        self._count()
        self._parse_in_turn()

    def _parse_in_turn(self) -> None:
        if self._parsing is None and self._unparsed and not self.transport.is_closing():
            scheduler = scheduler_of(self.loop)
            self._parsing = scheduler.begin(self._address, self._parse)

    def _count(self) -> None:
        """Counts what is held of requests without accepted credentials."""
        held = len(self._unparsed)
        if self._in_head:
            held += self._head_bytes
        if self.cycle is not None and not self.cycle.response_complete:
            held += len(self.cycle.body)
        if held <= SMALL or self._wire.is_let_in or self.transport.is_closing():
            held = 0
        if held == self._counted:
            return
        if self._counted:
            STRANGERS.give_back(self._address, self._counted)
            self._counted = 0
        if held and not STRANGERS.take(self._address, held):
            self._end(b"503 Service Unavailable", NO_ROOM)
        else:
            self._counted = held

    def _close(self) -> None:
        self.transport.close()

    def _want_body(self) -> None:
        """The body at hand is to be read."""
        if self._wire.is_let_in:
            self._read_at_most(BODY_READS * settings.APPLIANCE.http_read_size)
        self._parse_in_turn()

    def _has_to_wait(self) -> bool:
        """Whether enough requests wait already, or a body comes that is not wanted yet."""
        if len(self.pipeline) >= REQUESTS_WAITING_MAX:
            return True
        is_in_body = not (self._between or self._in_head)
        if not is_in_body or self.cycle is None:  # there is none where a head is refused
            return False
        return not (self._wire.is_wanted or self.cycle.response_complete)

    def _parse(self) -> None:
        """Takes in a piece of what came; once there is nothing more of it, more is read."""
        self._parsing = None
        if self.transport.is_closing():
            self._unparsed.clear()
            return
        self._parse_pieces()
        self._count()
        if self._unparsed:
            if not self._has_to_wait():
                self._parse_in_turn()
            return
        self.flow.is_held = False
        if not self.pipeline and (self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT):
            self.flow.resume_reading()

    def _parse_pieces(self) -> None:
        cycle = self.cycle
        for _ in range(PIECES):
            if not self._unparsed or self.transport.is_closing() or self._has_to_wait():
                return
            self._parse_piece()
            if self.cycle is not cycle:  # another request has begun
                return

    def _parse_piece(self) -> None:
        if self._between:
            # Empty lines may come before a request: they are no reason to wait longer.
            self._await_head()
        size = max(PIECE, self._body_left)
        piece = bytes(memoryview(self._unparsed)[:size])
        del self._unparsed[:size]
        if self._in_head:
            self._head_bytes += len(piece)
        super().data_received(piece)
        if self._in_head and self._head_bytes > HEAD_MAX:
            self._end(b"431 Request Header Fields Too Large")
        follower = self.transport.get_protocol()
        if isinstance(follower, asyncio.Protocol) and follower is not self and self._unparsed:
            # A WebSocket now, whose first frames came with its request.
            rest = bytes(self._unparsed)
            self._unparsed.clear()
            self.flow.is_held = False
            self.flow.resume_reading()
            follower.data_received(rest)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._count()
        self._parse_in_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_timer()
        super().connection_lost(exc)
        # A request that began may wait for its turn for long, and it refers to this.
        self._unparsed.clear()
        self.pipeline.clear()
        if self._parsing is not None:
            self._parsing.cancel()
            self._parsing = None
        self._count()
        if self._wire.on_lost is not None:
            self._wire.on_lost()
        self._wire.release()
        release(self.transport)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[SEEN] = self._seen
        scope[WIRE] = self._wire
        self._between = False
        self._got_more_time = False
        self._in_head = True
        self._head_bytes = 0
        self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._forget_timer()
        if len(self.headers) > HEADERS_MAX:
            raise TooManyHeaders
        # The request's task is made here: it works in its address's turns from its first step.
        whose = ADDRESS.set(self._address)
        try:
            super().on_headers_complete()
        finally:
            ADDRESS.reset(whose)
        self._body_left = announced(self.scope) or 0  # type: ignore[arg-type]

    def on_body(self, body: bytes) -> None:
        self._body_left = max(0, self._body_left - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_left = 0
        self._wire.is_wanted = False
        self._read_at_most(settings.APPLIANCE.http_read_size)
        super().on_message_complete()
        self._between = True

    def _await_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(settings.APPLIANCE.http_timeout, self._too_slow)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._in_head:
            self._end(b"408 Request Timeout")
        elif self.cycle is None or self.cycle.response_complete:
            self._close_unless_asked()

    def timeout_keep_alive_handler(self) -> None:
        """What uvicorn calls when nothing was parsed for long after an answer."""
        self._close_unless_asked()

    def _close_unless_asked(self) -> None:
        """Ends an idle connection. A request that is here already, and which a busy machine has not
        parsed or read yet, would be lost with it: its client could not tell whether it was carried
        out, and may repeat only some methods by itself (RFC 9110, 9.2.2). It gets as long again,
        once: empty lines are none."""
        if self.transport.is_closing():
            return
        if not self._got_more_time and (self._unparsed or self._is_readable()):
            self._got_more_time = True
            self._await_head()
        else:
            self.transport.close()

    def _is_readable(self) -> bool:
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    def _end(self, status: bytes, text: bytes = b"") -> None:
        self._forget_timer()
        self._unparsed.clear()
        length = str(len(text)).encode()
        self.transport.write(
            b"HTTP/1.1 "
            + status
            + b"\r\ncontent-type: text/plain\r\ncontent-length: "
            + length
            + b"\r\nconnection: close\r\n\r\n"
            + text
        )
        self.transport.close()
