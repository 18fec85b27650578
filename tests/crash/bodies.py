"""Message bodies that tell who they are and that they are whole.

A body's size and bytes follow from (run, publisher, sequence) alone, so a consumer can build the
body it should have got and compare byte for byte. From 16 bytes on it also carries its identity and
a CRC-32, so that an altered body can be told from one that arrived in another's place.
"""

from __future__ import annotations

import random
import struct
import zlib
from functools import lru_cache

FRAME_MAX = 131072
SMALL = (16, 17, 40, 100, 255, 256, 1000, 1500, 3999, 4000, 4095, 4096, 4097)
RARE = (0, 1, FRAME_MAX - 9, FRAME_MAX - 8, FRAME_MAX - 7, FRAME_MAX + 1, 1 << 20)
SHARED = (4095, 4096, 5000, 9000, 16384, 40000, FRAME_MAX + 1)
"""Of messages to several queues: whether the body is shared is decided at 4096 bytes."""
FANOUT_EVERY = 16
HEAD = struct.Struct(">HHQ")


@lru_cache(maxsize=4)
def _pool(run: int) -> bytes:
    return random.Random(run).randbytes((1 << 20) + 8192)


def is_fanned_out(sequence: int) -> bool:
    """Whether this message goes to all queues."""
    return sequence % FANOUT_EVERY == FANOUT_EVERY - 1


def size(run: int, publisher: int, sequence: int) -> int:
    """Bytes of this body: mostly small, one in 61 from the edges of frames and buffers, larger
    where it goes to several queues."""
    mixed = (sequence * 2654435761 + publisher * 40503 + run) & 0xFFFFFFFF
    if is_fanned_out(sequence):
        return SHARED[(mixed >> 16) % len(SHARED)]
    if sequence % 61 == 60:
        return RARE[(sequence // 61) % len(RARE)]
    return SMALL[(mixed >> 16) % len(SMALL)]


def make(run: int, publisher: int, sequence: int) -> bytes:
    """The body of one message."""
    length = size(run, publisher, sequence)
    offset = (sequence * 31 + publisher * 7) % 8192
    filler = _pool(run)
    if length < HEAD.size + 4:
        return filler[offset : offset + length]
    head = HEAD.pack(run & 0xFFFF, publisher, sequence)
    whole = head + filler[offset : offset + length - HEAD.size - 4]
    return whole + struct.pack(">I", zlib.crc32(whole))


def message_id(run: int, publisher: int, sequence: int) -> str:
    """The message-id property, which names even a body of 0 bytes."""
    return f"{run}.{publisher}.{sequence}"


def identity(text: str) -> tuple[int, int, int]:
    """(run, publisher, sequence) of a message id. Raises ValueError if it is not one of ours."""
    run, publisher, sequence = text.split(".")
    return int(run), int(publisher), int(sequence)
