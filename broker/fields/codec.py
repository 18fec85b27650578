"""Field values and field tables (AMQP 0-9-1 section 4.2.5.5, with the type letters that RabbitMQ
and its clients use).

Integers keep their value, not their width; a value goes out as the narrowest of RabbitMQ's usual
types (`I` below 2**31, else `l`). Wrapper classes keep what Python has no type for, so that
arguments round-trip.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from broker.schema.errors import FrameError
from broker.schema.times import Timestamp as Timestamp
from broker.settings.bounds import NESTING_MAX, TABLE_VALUES_MAX

# A hostile table must not cost more than its bytes: nesting and element counts are bounded.
DEPTH_MAX = NESTING_MAX
ELEMENTS_MAX = TABLE_VALUES_MAX


class Malformed(FrameError):
    """501: the bytes of a table, a string or an argument list do not add up."""


class Long(int):
    """A 64-bit integer (type l), where clients expect that width whatever the value."""


class Short(int):
    """A 16-bit integer (type s), likewise."""


class Byte(int):
    """A signed or unsigned octet (types b, B)."""


class Float(float):
    """A 32-bit float (type f)."""


class Binary(bytes):
    """Bytes that are not text (type x)."""


def text(data: bytes) -> str:
    """A long or short string as text; bytes that are no UTF-8 survive a round trip."""
    return data.decode("utf-8", "surrogateescape")


def octets(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


class Reader:
    """Reads values from bytes in order. Every method raises Malformed when they run out."""

    __slots__ = ("at", "data", "elements", "end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.elements = 0

    def take(self, count: int) -> bytes:
        at = self.at
        if count > self.end - at:
            raise Malformed("cannot decode: the arguments end too early")
        self.at = at + count
        return self.data[at : at + count]

    def unsigned(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def signed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def short_string(self) -> str:
        # One that fits is the rule, and a header table may hold twenty thousand.
        at = self.at
        if at < self.end:
            stop = at + 1 + self.data[at]
            if stop <= self.end:
                self.at = stop
                return text(self.data[at + 1 : stop])
        return text(self.take(self.unsigned(1)))

    def long_string(self) -> bytes:
        return self.take(self.unsigned(4))

    def table(self, depth: int = 0) -> dict[str, Any]:
        size = self.unsigned(4)
        end = self.at + size
        if end > self.end:
            raise Malformed("cannot decode: a table is longer than what holds it")
        table: dict[str, Any] = {}
        while self.at < end:
            key = self.short_string()
            table[key] = self.value(depth + 1)
        if self.at != end:
            raise Malformed("cannot decode: a table's entries do not fill its length")
        return table

    def array(self, depth: int = 0) -> list[Any]:
        size = self.unsigned(4)
        end = self.at + size
        if end > self.end:
            raise Malformed("cannot decode: an array is longer than what holds it")
        array = []
        while self.at < end:
            array.append(self.value(depth + 1))
        if self.at != end:
            raise Malformed("cannot decode: an array's elements do not fill its length")
        return array

    def value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise Malformed(f"cannot decode: tables are nested deeper than {DEPTH_MAX}")
        self.elements += 1
        if self.elements > ELEMENTS_MAX:
            raise Malformed(f"cannot decode: more than {ELEMENTS_MAX} values in one table")
        at = self.at
        if self.data[at : at + 1] == b"S":
            start = at + 5
            stop = start + int.from_bytes(self.data[at + 1 : start], "big")
            if stop <= self.end:
                self.at = stop
                return text(self.data[start:stop])
        kind = self.take(1)
        if kind == b"S":
            return text(self.long_string())
        if kind in (b"I", b"l", b"L", b"s", b"i", b"u", b"U"):
            return _INTEGERS[kind](self)
        if kind == b"t":
            return self.unsigned(1) != 0
        if kind == b"F":
            return self.table(depth)
        if kind == b"A":
            return self.array(depth)
        if kind == b"V":
            return None
        if kind == b"T":
            return Timestamp(self.unsigned(8))
        if kind == b"d":
            return struct.unpack(">d", self.take(8))[0]
        if kind == b"f":
            return Float(struct.unpack(">f", self.take(4))[0])
        if kind == b"b":
            return Byte(self.signed(1))
        if kind == b"B":
            return Byte(self.unsigned(1))
        if kind == b"x":
            return Binary(self.long_string())
        if kind == b"D":
            scale = self.unsigned(1)
            return decimal.Decimal(self.signed(4)).scaleb(-scale)
        raise Malformed(f"cannot decode: unknown field type {kind!r}")


_INTEGERS = {
    b"I": lambda reader: reader.signed(4),
    b"l": lambda reader: reader.signed(8),
    b"L": lambda reader: reader.signed(8),
    b"s": lambda reader: reader.signed(2),
    b"U": lambda reader: reader.signed(2),
    b"i": lambda reader: reader.unsigned(4),
    b"u": lambda reader: reader.unsigned(2),
}


class Writer:
    """Encodes values, within the bounds of `Reader`: what it writes can be read again. Every method
    raises ValueError for what AMQP has no type for and for what goes beyond the bounds."""

    __slots__ = ("elements",)

    def __init__(self) -> None:
        self.elements = 0

    def table(self, table: Mapping[str, Any], depth: int = 0) -> bytes:
        parts = []
        for key, value in table.items():
            name = octets(key)
            if len(name) > 255:
                raise ValueError(f"the table key {key[:40]!r}… is longer than 255 bytes")
            parts.append(bytes([len(name)]) + name + self.value(value, depth + 1))
        body = b"".join(parts)
        return struct.pack(">I", len(body)) + body

    def array(self, array: Sequence[Any], depth: int = 0) -> bytes:
        body = b"".join(self.value(each, depth + 1) for each in array)
        return struct.pack(">I", len(body)) + body

    def value(self, value: Any, depth: int) -> bytes:
        if depth > DEPTH_MAX:
            raise ValueError(f"tables are nested deeper than {DEPTH_MAX}")
        self.elements += 1
        if self.elements > ELEMENTS_MAX:
            raise ValueError(f"there are more than {ELEMENTS_MAX} values in one table")
        if value is None:
            return b"V"
        if isinstance(value, bool):
            return b"t\x01" if value else b"t\x00"
        if isinstance(value, Timestamp):
            return b"T" + struct.pack(">Q", value)
        if isinstance(value, Byte):
            if value < 128:
                return b"b" + struct.pack(">b", value)
            return b"B" + struct.pack(">B", value)
        if isinstance(value, Long):
            return b"l" + struct.pack(">q", value)
        if isinstance(value, Short):
            return b"s" + struct.pack(">h", value)
        if isinstance(value, int):
            if -(2**31) <= value < 2**31:
                return b"I" + struct.pack(">i", value)
            if -(2**63) <= value < 2**63:
                return b"l" + struct.pack(">q", value)
            raise ValueError(f"{value} does not fit 64 bits")
        if isinstance(value, Float):
            return b"f" + struct.pack(">f", value)
        if isinstance(value, float):
            return b"d" + struct.pack(">d", value)
        if isinstance(value, str):
            data = octets(value)
            return b"S" + struct.pack(">I", len(data)) + data
        if isinstance(value, bytes):
            return b"x" + struct.pack(">I", len(value)) + value
        if isinstance(value, Mapping):
            return b"F" + self.table(value, depth)
        if isinstance(value, (list, tuple)):
            return b"A" + self.array(value, depth)
        if isinstance(value, decimal.Decimal):
            scale = max(0, -int(value.as_tuple().exponent))
            return b"D" + struct.pack(">Bi", scale, int(value.scaleb(scale)))
        if isinstance(value, datetime.datetime):
            return b"T" + struct.pack(">Q", int(value.timestamp()))
        raise ValueError(f"a value of type {type(value).__name__} has no AMQP type")


def encode_value(value: Any) -> bytes:
    """Type letter and value, as they may stand in a table. Raises ValueError as `Writer` does."""
    return Writer().value(value, 1)


def encode_table(table: Mapping[str, Any]) -> bytes:
    """A field table with its length in front. Raises ValueError as `Writer` does."""
    return Writer().table(table)
