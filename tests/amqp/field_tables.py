"""Field values and tables, encoded and decoded slowly and plainly (AMQP 0-9-1 §4.2.5.5).

The type letters are the ones RabbitMQ and every client use, which differ from the letters of the
printed grammar: ``s`` is a signed 16-bit integer, ``l`` a signed 64-bit one, ``x`` a byte array.
"""

import struct
from dataclasses import dataclass
from typing import Any

FIXED = {
    "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q",
    "f": ">f", "d": ">d", "T": ">Q",
}  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """A value with its type letter spelled out, for letters that Python's types do not choose."""

    letter: str
    value: Any


def encode_shortstr(value: str | bytes) -> bytes:
    """One length octet, then at most 255 octets."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">B", len(data)) + data


def encode_longstr(value: str | bytes) -> bytes:
    """Four length octets, then the octets."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(data)) + data


def encode_value(value: Any) -> bytes:
    """A type letter and a value; Python's own types choose t, I or l, d, S, x, F, A and V."""
    match value:
        case Typed("S" | "x" as letter, data):
            return letter.encode() + encode_longstr(data)
        case Typed("D", (scale, number)):
            return b"D" + struct.pack(">Bi", scale, number)
        case Typed("F" | "A" | "V" | "t", plain):
            return encode_value(plain)
        case Typed(letter, number):
            return letter.encode() + struct.pack(FIXED[letter], number)
        case bool():
            return b"t" + bytes([value])
        case int():
            if -(2**31) <= value < 2**31:
                return b"I" + struct.pack(">i", value)
            return b"l" + struct.pack(">q", value)
        case float():
            return b"d" + struct.pack(">d", value)
        case str():
            return b"S" + encode_longstr(value)
        case bytes():
            return b"x" + encode_longstr(value)
        case dict():
            return b"F" + encode_table(value)
        case list():
            return b"A" + encode_longstr(b"".join(encode_value(item) for item in value))
        case None:
            return b"V"
    raise TypeError(f"{value!r} has no field type")


def encode_table(table: dict[str, Any]) -> bytes:
    """Four length octets, then each name as a short string and its value."""
    body = b"".join(encode_shortstr(name) + encode_value(value) for name, value in table.items())
    return encode_longstr(body)


class Reader:
    """Takes values off the front of some bytes; `ValueError` if they end too early."""

    def __init__(self, data: bytes, *, typed: bool = False) -> None:
        self.data, self.at, self.typed = data, 0, typed

    def take(self, count: int) -> bytes:
        """The next `count` octets."""
        if self.at + count > len(self.data):
            raise ValueError(f"{count} octets wanted, {len(self.data) - self.at} left")
        self.at += count
        return self.data[self.at - count : self.at]

    def fixed(self, format_: str) -> Any:
        """The next value of a one-value `struct` format."""
        return struct.unpack(format_, self.take(struct.calcsize(format_)))[0]

    def shortstr(self) -> str:
        """A short string, undecodable octets kept as surrogates."""
        return self.take(self.fixed(">B")).decode("utf-8", "surrogateescape")

    def longstr(self) -> bytes:
        """A long string's octets."""
        return self.take(self.fixed(">I"))

    def value(self) -> Any:
        """A type letter and its value (wrapped in `Typed` if the reader keeps types)."""
        letter = self.take(1).decode("latin-1")
        if letter in FIXED:
            plain: Any = self.fixed(FIXED[letter])
        elif letter == "t":
            plain = self.fixed(">B") != 0
        elif letter == "D":
            plain = (self.fixed(">B"), self.fixed(">i"))
        elif letter == "S":
            plain = self.longstr()
            if not self.typed:
                plain = plain.decode("utf-8", "surrogateescape")
        elif letter == "x":
            plain = self.longstr()
        elif letter == "F":
            plain = self.table()
        elif letter == "A":
            inner = Reader(self.longstr(), typed=self.typed)
            plain = []
            while inner.at < len(inner.data):
                plain.append(inner.value())
        elif letter == "V":
            plain = None
        else:
            raise ValueError(f"no field type {letter!r}")
        return Typed(letter, plain) if self.typed else plain

    def table(self) -> dict[str, Any]:
        """A whole field table; a name given twice keeps its last value."""
        inner = Reader(self.longstr(), typed=self.typed)
        table = {}
        while inner.at < len(inner.data):
            name = inner.shortstr()
            table[name] = inner.value()
        return table
