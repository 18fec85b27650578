"""Changing some headers of a message and leaving the rest as its publisher wrote it, byte for byte.

Decoding and encoding again would keep the values but not the widths of integers. A table that
cannot be read stays as it is: no publish brings one, but it may lie on the disk since a time before
that was checked, and its message has to go on.
"""

from __future__ import annotations

import struct
from typing import Any

from broker.fields.codec import Malformed, Reader, encode_value, octets
from broker.fields.properties import TABLE, encode
from broker.settings.bounds import TABLE_VALUES_MAX

HEADERS_BIT = 13


class ListedProperties:
    """Property flags and list (AMQP 0-9-1 section 4.2.6.1), open for changes. Raises Malformed."""

    def __init__(self, listed: bytes) -> None:
        self._parts: dict[int, bytes] = {}
        self._headers: dict[str, bytes] = {}
        # The header table with its length, if it cannot be read; then there are no headers.
        self._unreadable: bytes | None = None
        reader = Reader(listed)
        flags = reader.unsigned(2)
        for _, bit, kind in TABLE:
            if not flags >> bit & 1:
                continue
            start = reader.at
            if kind == "table":
                try:
                    self._headers = _fields(reader.long_string())
                except Malformed:
                    self._unreadable = listed[start : reader.at]
                continue
            reader.take({"shortstr": 0, "octet": 1, "timestamp": 8}[kind])
            if kind == "shortstr":
                reader.short_string()
            self._parts[bit] = listed[start : reader.at]

    def header(self, name: str) -> Any:
        """A header's value, or None."""
        raw = self._headers.get(name)
        return Reader(raw).value(1) if raw is not None else None

    def names(self) -> list[str]:
        """Of the headers, in their order."""
        return list(self._headers)

    def set_header(self, name: str, value: Any) -> None:
        """Adds a header or replaces it; does nothing where the others cannot be read."""
        if self._unreadable is None:
            self._headers[name] = encode_value(value)

    def remove_header(self, name: str) -> None:
        self._headers.pop(name, None)

    def set_property(self, name: str, value: Any) -> None:
        """Sets a property other than the headers. Raises ValueError."""
        bit = next(bit for each, bit, _ in TABLE if each == name)
        self._parts[bit] = encode({name: value})[2:]

    def take(self, bit: int) -> str | None:
        """Removes a property of kind short string and returns its value."""
        raw = self._parts.pop(bit, None)
        return Reader(raw).short_string() if raw is not None else None

    def encode(self) -> bytes:
        """Flags and list as a content header holds them. Raises ValueError if the headers hold more
        values than can be read again."""
        parts = dict(self._parts)
        if self._unreadable is not None:
            parts[HEADERS_BIT] = self._unreadable
        elif self._headers:
            table = b"".join(
                bytes([len(octets(name))]) + octets(name) + raw
                for name, raw in self._headers.items()
            )
            # Each value has a byte at least.
            if len(table) > TABLE_VALUES_MAX:
                _check(table)
            parts[HEADERS_BIT] = struct.pack(">I", len(table)) + table
        bits = sorted(parts, reverse=True)
        flags = sum(1 << bit for bit in bits)
        return struct.pack(">H", flags) + b"".join(parts[bit] for bit in bits)


def _check(table: bytes) -> None:
    """Raises ValueError for a table that could not be read."""
    try:
        _fields(table)
    except Malformed as error:
        raise ValueError(str(error)) from None


def _fields(data: bytes) -> dict[str, bytes]:
    """The fields of a table without its length, each value as it stands with its type letter.
    Raises Malformed."""
    reader = Reader(data)
    fields: dict[str, bytes] = {}
    while reader.at < reader.end:
        name = reader.short_string()
        start = reader.at
        reader.value(1)
        fields[name] = data[start : reader.at]
    return fields
