"""From the broker's values to msgpack, in pieces that never hold up the loop."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterable
from typing import Any

import msgspec

_TURN_S = 0.0005


class Pace:
    """Gives the loop a chance to do something else when half a millisecond has passed."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + _TURN_S

    async def __call__(self) -> None:
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + _TURN_S


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
    return msgspec.Raw(struct.pack(">BI", 0xDD, len(pieces)) + b"".join(pieces))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value
