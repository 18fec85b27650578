"""How frames are written to the control socket: a long one in pieces, one in each turn of the loop.

A file of definitions of 7 MB that is written at once is copied three times, which takes 12 ms. One
that is encoded with its request is copied once more: fresh memory takes half a millisecond for each
MiB. So such a value is written as it is, between what is encoded before and behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
from collections import deque
from contextvars import Context

import msgspec

from broker.schema.control_schema import Request

PIECE = 256 * 1024

_LENGTH = struct.Struct(">I")
_BIN_32 = b"\xc6"
"""Begins a byte string of msgpack whose length is four octets."""


def parts_of(encoder: msgspec.msgpack.Encoder, request: Request) -> list[bytes]:
    """A request's frame without its length, in parts: each long byte string of its arguments is
    one, and is not copied."""
    # In their place something short and random, which no other part of the request can be.
    marks = {
        name: secrets.token_bytes(16)
        for name, value in request.args.items()
        if isinstance(value, bytes) and len(value) > PIECE
    }
    if not marks:
        return [encoder.encode(request)]
    short = msgspec.structs.replace(request, args={**request.args, **marks})
    rest, parts = encoder.encode(short), []
    for name, mark in marks.items():
        value = request.args[name]
        before, rest = rest.split(encoder.encode(mark), 1)
        parts += [before + _BIN_32 + _LENGTH.pack(len(value)), value]
    return [*parts, rest]


class FrameWriter:
    """Writes the frames of one connection in the order in which they come."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None

    def write(self, *parts: bytes) -> None:
        """Writes a frame at once, or behind what waits."""
        length = sum(map(len, parts))
        head = _LENGTH.pack(length)
        if self._task is None and length <= PIECE:
            self._writer.write(b"".join((head, *parts)))
            return
        self._waiting += (head, *parts)
        if self._task is None:
            # It works for all, not for the request that came first.
            self._task = asyncio.create_task(
                self._write_waiting(), name="long frames", context=Context()
            )

    def close(self) -> None:
        """Ends the connection: what waits is given up."""
        self._waiting.clear()
        self._writer.close()
        if self._task is not None:
            self._task.cancel()

    async def _write_waiting(self) -> None:
        try:
            # What reads from the connection notices that it has ended.
            with contextlib.suppress(OSError):
                while self._waiting:
                    rest = memoryview(self._waiting.popleft())
                    while rest:
                        self._writer.write(rest[:PIECE])
                        rest = rest[PIECE:]
                        await self._writer.drain()
                        await asyncio.sleep(0)
        finally:
            self._waiting.clear()
            self._task = None
