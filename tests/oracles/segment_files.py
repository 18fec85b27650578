"""Queue segments and acks, read and written in plain Python from docs/formats/queue-segment.md."""

import struct
from dataclasses import dataclass

MESSAGES_HEADER = b"LVRS" + struct.pack("<I", 1)
ACKS_HEADER = b"LVRA" + struct.pack("<I", 1)
SETTLED, WATERMARK, COUNT, RUN = range(4)
PERSISTENT = 8


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes, seed: int = 0) -> int:
    """CRC-32C (Castagnoli), going on from `seed`."""
    value = seed ^ 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


def place_seed(incarnation: int, segment: int, position: int) -> int:
    """The CRC of a record's place, with which its own CRC begins."""
    return crc32c(struct.pack("<QII", incarnation, segment, position))


@dataclass(frozen=True)
class Record:
    """One message on disk; `position` is where it begins in its file."""

    position: int
    timestamp: int
    flags: int
    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes

    @property
    def bytes(self) -> int:
        """Octets of the record with its head."""
        parts = (self.exchange, self.routing_key, self.properties, self.body)
        return 24 + sum(len(part) for part in parts)

    def encode(self, incarnation: int, segment: int) -> bytes:
        """The record as it lies at its position."""
        checked = struct.pack(
            "<qBBBBI",
            self.timestamp,
            self.flags,
            len(self.exchange),
            len(self.routing_key),
            0,
            len(self.body),
        )
        checked += self.exchange + self.routing_key + self.properties + self.body
        check = crc32c(checked, place_seed(incarnation, segment, self.position))
        return struct.pack("<II", len(checked) + 4, check) + checked


def decode(data: bytes, at: int, incarnation: int, segment: int) -> Record | None:
    """The record at a position, or None if what lies there does not check."""
    if at + 24 > len(data):
        return None
    length, check, timestamp, flags, x, k, _, b = struct.unpack_from("<IIqBBBBI", data, at)
    end = at + 4 + length
    if end > len(data) or 24 + x + k + 2 + b > length + 4:
        return None
    if crc32c(data[at + 8 : end], place_seed(incarnation, segment, at)) != check:
        return None
    start = at + 24
    return Record(
        at,
        timestamp,
        flags,
        data[start : start + x],
        data[start + x : start + x + k],
        data[start + x + k : end - b],
        data[end - b : end],
    )


def records(data: bytes, incarnation: int, segment: int) -> list[Record]:
    """Every record that checks, in order; what does not is searched over byte by byte."""
    if data[:8] != MESSAGES_HEADER:
        return []
    found, at = [], 8
    while at < len(data):
        record = decode(data, at, incarnation, segment)
        if record is None:
            at += 1
        else:
            found.append(record)
            at += record.bytes
    return found


def ack_entry(position: int, kind: int, value: int, incarnation: int, segment: int) -> bytes:
    """One entry of an acks file."""
    entry = struct.pack("<II", position, kind << 30 | value)
    return entry + struct.pack("<I", crc32c(entry, place_seed(incarnation, segment, 0)))


def settled(data: bytes, records_: list[Record], incarnation: int, segment: int) -> set[int]:
    """The positions of the records that an acks file says are settled."""
    positions: set[int] = set()
    if data[:8] != ACKS_HEADER:
        return positions
    for at in range(8, len(data) - 11, 12):
        position, word, check = struct.unpack_from("<III", data, at)
        if check != crc32c(data[at : at + 8], place_seed(incarnation, segment, 0)):
            continue
        if word >> 30 == SETTLED:
            positions.add(position)
        elif word >> 30 == RUN:
            end = position + (word & 0x3FFFFFFF)
            positions |= {each.position for each in records_ if position <= each.position < end}
    return positions
