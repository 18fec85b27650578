"""What can go wrong with bytes on their way: one mutation each, chosen by chance."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable

INTERESTING = [
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xce",
    b"\xff",
    b"\x00\x00\x00\x00",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"AMQP\x00\x00\x09\x01",
    b"\x08\x00\x00\x00\x00\x00\x00\xce",
]

Mutation = Callable[[random.Random, bytearray], None]


def _place(chance: random.Random, data: bytearray) -> int:
    return chance.randrange(len(data)) if data else 0


def flip(chance: random.Random, data: bytearray) -> None:
    """Some bits."""
    for _ in range(chance.choice((1, 1, 1, 3, 20))):
        if data:
            data[_place(chance, data)] ^= 1 << chance.randrange(8)


def overwrite(chance: random.Random, data: bytearray) -> None:
    value, at = chance.choice(INTERESTING), _place(chance, data)
    data[at : at + len(value)] = value


def insert(chance: random.Random, data: bytearray) -> None:
    at = _place(chance, data)
    data[at:at] = chance.choice((chance.choice(INTERESTING), chance.randbytes(20)))


def remove(chance: random.Random, data: bytearray) -> None:
    at = _place(chance, data)
    del data[at : at + chance.choice((1, 1, 4, 30))]


def repeat(chance: random.Random, data: bytearray) -> None:
    at = _place(chance, data)
    part = data[at : at + chance.randrange(1, 200)]
    data[at:at] = part * chance.choice((1, 2, 50))


def cut(chance: random.Random, data: bytearray) -> None:
    del data[_place(chance, data) :]


def noise(chance: random.Random, data: bytearray) -> None:
    data += chance.randbytes(chance.choice((1, 10, 1000, 20_000)))


def _frames(data: bytes | bytearray) -> list[int]:
    """Where whole frames begin."""
    at, found = 0, []
    while at + 8 <= len(data):
        size = struct.unpack_from(">I", data, at + 3)[0]
        if data[at] not in (1, 2, 3, 8) or at + size + 8 > len(data):
            break
        found.append(at)
        at += size + 8
    return found


def frame_head(chance: random.Random, data: bytearray) -> None:
    """A frame's type, channel or length."""
    frames = _frames(data)
    if not frames:
        overwrite(chance, data)
        return
    at = chance.choice(frames)
    what = chance.randrange(3)
    if what == 0:
        data[at] = chance.choice((0, 1, 2, 3, 4, 8, 65, 255))
    elif what == 1:
        struct.pack_into(">H", data, at + 1, chance.choice((0, 1, 2, 63, 64, 65, 65535)))
    else:
        size = struct.unpack_from(">I", data, at + 3)[0]
        struct.pack_into(
            ">I", data, at + 3, (size + chance.choice((-4, -1, 1, 4, 1000))) & 0xFFFFFFFF
        )


def method_ids(chance: random.Random, data: bytearray) -> None:
    """Another method with the arguments of this one."""
    frames = [at for at in _frames(data) if data[at] == 1 and at + 11 <= len(data)]
    if not frames:
        flip(chance, data)
        return
    class_id = chance.choice((10, 20, 30, 40, 50, 60, 85, 90, chance.randrange(65536)))
    struct.pack_into(">HH", data, chance.choice(frames) + 7, class_id, chance.randrange(0, 130, 1))


def shuffle(chance: random.Random, data: bytearray) -> None:
    """Whole frames in another order, some of them gone or doubled."""
    starts = _frames(data)
    if len(starts) < 2:
        return
    bounds = [*starts, len(data)]
    parts = [bytes(data[a:b]) for a, b in itertools.pairwise(bounds)]
    data[:] = b"".join(chance.choices(parts, k=len(parts)))


MUTATIONS: list[Mutation] = [
    flip,
    overwrite,
    insert,
    remove,
    repeat,
    cut,
    noise,
    frame_head,
    frame_head,
    method_ids,
    shuffle,
]


def mutate(chance: random.Random, data: bytes) -> bytes:
    """A few mutations, one on top of the other; at times none."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5))):
        chance.choice(MUTATIONS)(chance, changed)
    return bytes(changed)


def split(chance: random.Random, data: bytes) -> list[bytes]:
    """The same bytes in one piece or many."""
    pieces, at = [], 0
    largest = chance.choice((1 << 20, 1 << 20, 4096, 100, 8))
    if len(data) > 4000:
        largest = max(largest, 100)
    while at < len(data):
        size = chance.randrange(1, largest + 1)
        pieces.append(data[at : at + size])
        at += size
    return pieces
