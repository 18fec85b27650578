"""From the broker's values to msgpack, in pieces that never hold up the loop."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

_TURN_S = 0.0002
"""A message of another client waits for so long at most. Half of it would cost a tenth more in
turns of the loop."""


class Pace:
    """Gives the loop a chance to do something else when 0.2 ms have passed.

    All paces of a loop share its turns: those that begin in a turn have one slice together, and one
    of those that wait continues in each turn, in order of arrival. However many clients ask for
    long lists at the same time, others wait for one slice. To be made in a coroutine.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        queue = _queues.get(loop)
        if queue is None:
            queue = _queues[loop] = _Queue(loop)
        self._queue = queue
        self._until = queue.begin()

    async def __call__(self) -> None:
        if time.perf_counter() >= self._until:
            await self._queue.place()
            self._until = time.perf_counter() + _TURN_S


class _Queue:
    """Paces that wait for a turn of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._create_future = loop.create_future
        self._until: float | None = None
        self.waiting: deque[asyncio.Future[None]] = deque()

    def begin(self) -> float:
        """Until when what begins now may go on: the end of this turn's slice."""
        if self.waiting:
            return 0.0
        if self._until is None:
            self._until = time.perf_counter() + _TURN_S
            self._call_soon(self._end)
        return self._until

    def _end(self) -> None:
        self._until = None

    def place(self) -> asyncio.Future[None]:
        """Done in a later turn, alone in it."""
        future: asyncio.Future[None] = self._create_future()
        self.waiting.append(future)
        if len(self.waiting) == 1:
            self._call_soon(self._next)
        return future

    def _next(self) -> None:
        while self.waiting and self.waiting[0].done():
            self.waiting.popleft()  # its request was cancelled
        if not self.waiting:
            return
        self.waiting.popleft().set_result(None)
        if self.waiting:
            self._call_soon(self._next)


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue] = WeakKeyDictionary()


def _plain(value: Any) -> Any:
    # Field tables hold subclasses that remember a type of AMQP; they go out as what they are.
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return bytes(value) if isinstance(value, bytes) else str(value)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)


def encode(value: Any) -> bytes:
    """The value as msgpack. Text that is no UTF-8 goes out with U+FFFD in its place."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_printable(value))


def full_name(names: Iterable[str], shown: str) -> str:
    """The one of `names` that is meant by what is shown of it: a name that is no UTF-8 is shown
    with U+FFFD in its place, and nobody can send it in another way. What no name or several are
    shown as comes back as it is."""
    if "\ufffd" not in shown or shown in names:
        return shown
    alike = [name for name in names if _printable(name) == shown]
    return alike[0] if len(alike) == 1 else shown


async def encode_rows(rows: Iterable[Any]) -> msgspec.Raw:
    """Rows as a msgpack array, encoded a few at a time."""
    pace = Pace()
    pieces = []
    for row in rows:
        pieces.append(encode(row))
        await pace()
    return _array(pieces)


async def encode_slice(rows: Iterable[Any], bytes_enough: int) -> tuple[msgspec.Raw, int]:
    """Rows as a msgpack array until they have so many bytes, and how many rows these are."""
    pace = Pace()
    pieces = []
    size = 0
    for row in rows:
        pieces.append(encode(row))
        size += len(pieces[-1])
        if size >= bytes_enough:
            break
        await pace()
    return _array(pieces), len(pieces)


async def encode_steps(
    rows: Iterator[Any], rows_enough: int, bytes_enough: int
) -> tuple[msgspec.Raw, bool]:
    """Rows as a msgpack array until there are so many or they have so many bytes, and whether these
    are the last. None among them is a step without a row."""
    pace = Pace()
    pieces = []
    size = 0
    for row in rows:
        if row is not None:
            pieces.append(encode(row))
            size += len(pieces[-1])
            if len(pieces) >= rows_enough or size >= bytes_enough:
                return _array(pieces), False
        await pace()
    return _array(pieces), True


def _array(pieces: list[bytes]) -> msgspec.Raw:
    return msgspec.Raw(struct.pack(">BI", 0xDD, len(pieces)) + b"".join(pieces))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value
