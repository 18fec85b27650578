"""From the broker's values to msgpack, in pieces that never hold up the loop."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from broker.server.pace import Pace


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
    with U+FFFD in its place, and callers can send it in that form only. Text that is shown for no
    name or for several is returned unchanged."""
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
    """Rows as a msgpack array until they have `bytes_enough` bytes, and how many rows these are."""
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
    """Rows as a msgpack array until there are `rows_enough` or they have `bytes_enough` bytes, and
    whether these are the last. None among them is a step without a row."""
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
