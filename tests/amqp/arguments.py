"""Method arguments and message properties to bytes and back, by the tables in `methods`.

Consecutive bits share an octet, the first in its lowest bit (AMQP 0-9-1 §4.2.5.2); properties are
flags, then the values of those that are set (§4.2.6.1).
"""

import struct
from collections.abc import Callable
from typing import Any

from tests.amqp.field_tables import Reader, encode_longstr, encode_shortstr, encode_table
from tests.amqp.methods import METHODS, PROPERTIES, MethodSpec

_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "octet": lambda value: struct.pack(">B", value),
    "short": lambda value: struct.pack(">H", value),
    "long": lambda value: struct.pack(">I", value),
    "longlong": lambda value: struct.pack(">Q", value),
    "shortstr": encode_shortstr,
    "longstr": encode_longstr,
    "table": encode_table,
}
_EMPTY: dict[str, Any] = {
    "octet": 0, "short": 0, "long": 0, "longlong": 0, "bit": False, "shortstr": "",
    "longstr": b"", "table": {},
}  # fmt: skip


def arguments(name: str, **fields: Any) -> bytes:
    """A method's arguments; fields left out are zero or empty. `reserved` fields may be given."""
    spec = METHODS[name]
    unknown = set(fields) - {field_name for field_name, _ in spec.fields}
    if unknown:
        raise TypeError(f"{name} has no field {', '.join(sorted(unknown))}")
    out, bits = bytearray(), 0
    for field_name, kind in spec.fields:
        value = fields.get(field_name, _EMPTY[kind])
        if kind == "bit":
            if bits % 8 == 0:
                out.append(0)
            out[-1] |= bool(value) << (bits % 8)
            bits += 1
        else:
            bits = 0
            out += _ENCODERS[kind](value)
    return bytes(out)


def decode_arguments(spec: MethodSpec, payload: bytes) -> dict[str, Any]:
    """A method's arguments by name; `ValueError` for leftover bytes."""
    reader, fields, bits, octet = Reader(payload), {}, 0, 0
    for name, kind in spec.fields:
        if kind == "bit":
            if bits % 8 == 0:
                octet = reader.fixed(">B")
            fields[name] = bool(octet >> (bits % 8) & 1)
            bits += 1
            continue
        bits = 0
        fields[name] = _decode(reader, kind)
    if reader.at != len(reader.data):
        raise ValueError(f"{spec.name}: {len(reader.data) - reader.at} octets too many")
    return fields


def properties(values: dict[str, Any]) -> bytes:
    """Property flags and list, as in a content header."""
    unknown = set(values) - {name for name, _ in PROPERTIES}
    if unknown:
        raise TypeError(f"no property {', '.join(sorted(unknown))}")
    flags, out = 0, b""
    for index, (name, kind) in enumerate(PROPERTIES):
        if name in values:
            flags |= 1 << (15 - index)
            out += _ENCODERS[kind](values[name])
    return struct.pack(">H", flags) + out


def decode_properties(payload: bytes) -> dict[str, Any]:
    """Property flags and list back into a dict."""
    reader = Reader(payload)
    flags = reader.fixed(">H")
    return {
        name: _decode(reader, kind)
        for index, (name, kind) in enumerate(PROPERTIES)
        if flags & (1 << (15 - index))
    }


def _decode(reader: Reader, kind: str) -> Any:
    formats = {"octet": ">B", "short": ">H", "long": ">I", "longlong": ">Q"}
    if kind in formats:
        return reader.fixed(formats[kind])
    return {"shortstr": reader.shortstr, "longstr": reader.longstr, "table": reader.table}[kind]()
