"""The properties of basic content (AMQP 0-9-1 section 4.2.6.1 and 1.8.1): property flags and list,
to and from names."""

from __future__ import annotations

import struct
from typing import Any

from broker.fields.codec import Malformed, Reader, Timestamp, encode_table, octets

# (name, flag bit, kind), in wire order.
TABLE = (
    ("content_type", 15, "shortstr"),
    ("content_encoding", 14, "shortstr"),
    ("headers", 13, "table"),
    ("delivery_mode", 12, "octet"),
    ("priority", 11, "octet"),
    ("correlation_id", 10, "shortstr"),
    ("reply_to", 9, "shortstr"),
    ("expiration", 8, "shortstr"),
    ("message_id", 7, "shortstr"),
    ("timestamp", 6, "timestamp"),
    ("type", 5, "shortstr"),
    ("user_id", 4, "shortstr"),
    ("app_id", 3, "shortstr"),
    ("cluster_id", 2, "shortstr"),
)


def decode(data: bytes, *, whole: bool = True) -> dict[str, Any]:
    """Properties by name, as they stand in a content header behind the body size. Raises Malformed
    (501); where not the `whole` is asked for, headers that cannot be read are left out instead."""
    reader = Reader(data)
    flags = reader.unsigned(2)
    if flags & 1:
        raise Malformed("cannot decode: more than one word of property flags")
    properties: dict[str, Any] = {}
    for name, bit, kind in TABLE:
        if not flags >> bit & 1:
            continue
        if kind == "shortstr":
            properties[name] = reader.short_string()
        elif kind == "table":
            start = reader.at
            try:
                properties[name] = reader.table()
            except Malformed:
                if whole:
                    raise
                reader.at = start
                reader.long_string()
        elif kind == "octet":
            properties[name] = reader.unsigned(1)
        else:
            properties[name] = Timestamp(reader.unsigned(8))
    if reader.at != reader.end:
        raise Malformed(f"cannot decode: {reader.end - reader.at} bytes follow the properties")
    return properties


def readable(data: bytes) -> dict[str, Any]:
    """What can be decoded of the properties of a message that is here already: it may be older
    than the check of what comes in, and has to go on."""
    try:
        return decode(data, whole=False)
    except Malformed:
        return {}


def encode(properties: dict[str, Any]) -> bytes:
    """Property flags and list. Raises ValueError naming the property that does not fit."""
    flags = 0
    parts = []
    for name, bit, kind in TABLE:
        value = properties.get(name)
        if value is None or (kind == "table" and not value):
            continue
        flags |= 1 << bit
        try:
            if kind == "shortstr":
                data = octets(str(value))
                if len(data) > 255:
                    raise ValueError("longer than 255 bytes")
                parts.append(bytes([len(data)]) + data)
            elif kind == "table":
                parts.append(encode_table(value))
            elif kind == "octet":
                parts.append(struct.pack(">B", int(value)))
            else:
                parts.append(struct.pack(">Q", int(value)))
        except (struct.error, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"the property {name} cannot be sent: {error}") from None
    return struct.pack(">H", flags) + b"".join(parts)


def copied_to(headers: dict[str, Any], *names: str) -> list[str]:
    """The routing keys in the headers CC, BCC or both. What is no array, and what in one is no
    text, counts for nothing, as in RabbitMQ."""
    return [
        key
        for name in names
        if isinstance(keys := headers.get(name), list)
        for key in keys
        if isinstance(key, str)
    ]
