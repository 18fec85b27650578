"""What comes over a WebSocket, bounded in bytes and in turns of the loop.

Who has not signed in gets a number of bytes, and every client a number of frames without content a
second. In the web process a frame takes as long to take apart as several hundred bytes, and its
sender pays as few as six for it: there frames are taken apart in small pieces, and all WebSockets
share the turns of the loop. The broker's listener takes them apart in C (`websocket_frames`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from websockets.frames import Frame, Opcode

from broker.settings.bounds import FRAME_COST

PIECE = 1024
"""Bytes taken apart at a time: 170 frames at most."""
TURN_S = 0.001
"""Seconds of a turn of the loop that all WebSockets together take."""


class Excess(Exception):
    """A client sent more than it may; the text is the reason it gets."""


class Allowance:
    """What one client may send: a number of bytes before it has signed in, and of pings, pongs and
    data frames without content a second."""

    __slots__ = ("_before_login", "_empty", "_empty_max", "_since", "signed_in")

    def __init__(self, before_login: int, empty_max: int) -> None:
        self._before_login = before_login
        self._empty_max = empty_max
        self._empty = 0
        self._since = 0.0
        self.signed_in = False

    def spend(self, count: int) -> None:
        """Raises Excess when more bytes came than may come before login."""
        if not self.signed_in:
            self._before_login -= count
            if self._before_login < 0:
                raise Excess("too many bytes before login")

    def take_frames(self, count: int, empty: int, now: float) -> None:
        """Counts frames, `empty` of them without content; `now` is a monotonic clock's time in
        seconds. Raises Excess."""
        self.spend(FRAME_COST * count)
        if not empty:
            return
        if now - self._since >= 1:
            self._since, self._empty = now, 0
        self._empty += empty
        if self._empty > self._empty_max:
            raise Excess(f"more than {self._empty_max} pings or empty frames in a second")


class Turns:
    """Serves the WebSockets of one loop one after the other, `TURN_S` seconds in each turn."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._waiting: deque[Intake] = deque()
        self._active = False

    def begin(self, intake: Intake) -> None:
        """Continues with what came, now or behind the others that wait."""
        self._waiting.append(intake)
        if not self._active:
            self._go_on()

    def _go_on(self) -> None:
        until = time.perf_counter() + TURN_S
        self._active = True
        try:
            while self._waiting:
                intake = self._waiting.popleft()
                if intake.take_piece():
                    self._waiting.append(intake)
                if time.perf_counter() >= until:
                    break
        finally:
            self._active = bool(self._waiting)
            if self._active:
                self._call_soon(self._go_on)


def _do_nothing() -> None: ...


def _take_nothing(piece: bytearray) -> None: ...


class Intake:
    """The bytes of one WebSocket that are not taken apart yet.

    `take` gets them in pieces as long as `may_go_on` says so; it raises nothing. `changed` is
    called when there may be some left, or none any more: while there are, the owner does not read.
    """

    __slots__ = ("_bytes", "_changed", "_is_queued", "_may_go_on", "_take", "_turns")

    def __init__(
        self,
        turns: Turns,
        take: Callable[[bytearray], None],
        may_go_on: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._turns = turns
        self._take = take
        self._may_go_on = may_go_on
        self._changed = changed
        self._bytes = bytearray()
        self._is_queued = False

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        self._bytes += data
        self.go_on()

    def clear(self) -> None:
        """Forgets what is left."""
        self._bytes.clear()

    def release(self) -> None:
        """The connection is over: gives up its owner, who refers to this."""
        self._take = _take_nothing
        self._may_go_on = bool
        self._changed = _do_nothing

    def go_on(self) -> None:
        """Takes apart what is left, as far as this turn allows; to be called again when
        `may_go_on` has become true."""
        if self._bytes and not self._is_queued and self._may_go_on():
            self._is_queued = True
            self._turns.begin(self)
        self._changed()

    def take_piece(self) -> bool:
        """Whether more can be taken after this piece."""
        if self._bytes and self._may_go_on():
            piece = self._bytes[:PIECE]
            del self._bytes[:PIECE]
            self._take(piece)
        self._is_queued = bool(self._bytes) and self._may_go_on()
        if not self._is_queued:
            self._changed()
        return self._is_queued


def is_empty(frame: Frame) -> bool:
    """Whether a frame carries nothing for the application: a ping, a pong, data of no length."""
    return frame.opcode in (Opcode.PING, Opcode.PONG) or not (
        frame.data or frame.opcode is Opcode.CLOSE
    )
