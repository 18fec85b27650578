"""Changing some headers of a message and leaving the rest as its publisher wrote it, byte for byte.

Decoding and encoding again would keep the values but not the widths of integers.
"""

from __future__ import annotations

import struct
from typing import Any

from broker.wire.fields import Reader, encode_value, octets
from broker.wire.properties import TABLE

HEADERS_BIT = 13


class ListedProperties:
    """Property flags and list (AMQP 0-9-1 section 4.2.6.1), open for changes. Raises Malformed."""

    def __init__(self, listed: bytes) -> None:
        self._parts: dict[int, bytes] = {}
        self._headers: dict[str, bytes] = {}
        reader = Reader(listed)
        flags = reader.unsigned(2)
        for _, bit, kind in TABLE:
            if not flags >> bit & 1:
                continue
            start = reader.at
            if kind == "table":
                end = reader.unsigned(4) + reader.at
                while reader.at < end:
                    name = reader.short_string()
                    start = reader.at
                    reader.value(1)
                    self._headers[name] = listed[start : reader.at]
                continue
            reader.take({"shortstr": 0, "octet": 1, "timestamp": 8}[kind])
            if kind == "shortstr":
                reader.short_string()
            self._parts[bit] = listed[start : reader.at]

    def header(self, name: str) -> Any:
        """A header's value, or None."""
        raw = self._headers.get(name)
        return Reader(raw).value(1) if raw is not None else None

    def headers(self) -> dict[str, Any]:
        """All headers, decoded."""
        return {name: Reader(raw).value(1) for name, raw in self._headers.items()}

    def set_header(self, name: str, value: Any) -> None:
        self._headers[name] = encode_value(value)

    def remove_header(self, name: str) -> None:
        self._headers.pop(name, None)

    def take(self, bit: int) -> str | None:
        """Removes a property of kind short string and returns its value."""
        raw = self._parts.pop(bit, None)
        return Reader(raw).short_string() if raw is not None else None

    def encode(self) -> bytes:
        """Flags and list as a content header holds them."""
        parts = dict(self._parts)
        if self._headers:
            table = b"".join(
                bytes([len(octets(name))]) + octets(name) + raw
                for name, raw in self._headers.items()
            )
            parts[HEADERS_BIT] = struct.pack(">I", len(table)) + table
        bits = sorted(parts, reverse=True)
        flags = sum(1 << bit for bit in bits)
        return struct.pack(">H", flags) + b"".join(parts[bit] for bit in bits)
