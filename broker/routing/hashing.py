"""Two ways from a hash to one of several weighted destinations: a ring and jump.

Both depend on what is bound only, never on the process: after a restart a key goes where it went
before.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from hashlib import blake2b
from itertools import accumulate
from typing import Protocol

from broker.routing.exchange import Binding

# Points on the ring for each unit of weight. A share's standard deviation is about a tenth of the
# share with 96, and falls with the square root of their number.
RING_POINTS = 96
# Each unit of weight costs the ring 96 places of about 100 bytes, and binding it 40 microseconds.
RING_WEIGHT_MAX = 256
JUMP_WEIGHT_MAX = 2**32 - 1

_POINTS_PER_DIGEST = 8


def hash_of(value: str) -> int:
    """64 bits that depend on the text only (BLAKE2b)."""
    return int.from_bytes(
        blake2b(value.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little"
    )


class Spread(Protocol):
    """Weighted destinations."""

    weight_max: int

    def add(self, binding: Binding, weight: int) -> None: ...

    def remove(self, binding: Binding, weight: int) -> None: ...

    def find(self, hashed: int) -> Binding | None:
        """The binding whose destination gets what hashes to this; None without any."""


class Ring(Spread):
    """Each destination owns points on a ring of 64 bits; a hash belongs to the next point. Whatever
    is added takes its share from all others, and whatever goes leaves its share to all others;
    nothing else moves (Karger et al., Consistent hashing and random trees, 1997)."""

    weight_max = RING_WEIGHT_MAX

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owners: dict[int, tuple[str, str]] = {}
        # Bindings of a destination; it owns points for the sum of their weights.
        self._bindings: dict[tuple[str, str], list[tuple[Binding, int]]] = {}

    def add(self, binding: Binding, weight: int) -> None:
        end = (binding.destination_type, binding.destination)
        bindings = self._bindings.setdefault(end, [])
        before = sum(each for _, each in bindings)
        bindings.append((binding, weight))
        points = sorted(_points(end, before, before + weight))
        self._owners.update(dict.fromkeys(points, end))
        # Two sorted runs: merging them is linear.
        self._points += points
        self._points.sort()

    def remove(self, binding: Binding, weight: int) -> None:
        end = (binding.destination_type, binding.destination)
        bindings = self._bindings[end]
        bindings.remove((binding, weight))
        if not bindings:
            del self._bindings[end]
        left = sum(each for _, each in bindings)
        gone = set(_points(end, left, left + weight))
        for point in gone:
            self._owners.pop(point, None)
        self._points = [point for point in self._points if point not in gone]

    def find(self, hashed: int) -> Binding | None:
        if not self._points:
            return None
        at = bisect_left(self._points, hashed)
        point = self._points[at if at < len(self._points) else 0]
        return self._bindings[self._owners[point]][0][0]


class Jump(Spread):
    """Buckets in the order of binding, as many as a binding's weight. The spread is as even as can
    be and costs no memory; what is added last, or removed last, moves nothing else, but removing
    one before others moves keys among those behind it (Lamping and Veach, A fast, minimal memory,
    consistent hash algorithm, 2014)."""

    weight_max = JUMP_WEIGHT_MAX

    def __init__(self) -> None:
        self._bindings: list[Binding] = []
        self._weights: list[int] = []
        self._ends: list[int] = []

    def add(self, binding: Binding, weight: int) -> None:
        self._bindings.append(binding)
        self._weights.append(weight)
        self._ends.append((self._ends[-1] if self._ends else 0) + weight)

    def remove(self, binding: Binding, weight: int) -> None:
        at = self._bindings.index(binding)
        del self._bindings[at]
        del self._weights[at]
        self._ends = list(accumulate(self._weights))

    def find(self, hashed: int) -> Binding | None:
        if not self._ends:
            return None
        return self._bindings[bisect_right(self._ends, jump(hashed, self._ends[-1]))]


def jump(key: int, buckets: int) -> int:
    """The bucket, 0 to buckets - 1, of a 64-bit key. Each step leaps to the next number of buckets
    at which the key would move, so that there are about ln(buckets) of them."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        following = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


def _points(end: tuple[str, str], first: int, last: int) -> list[int]:
    """The points that a destination owns for the units of its weight from `first` to `last` - 1."""
    name = "\0".join(end).encode("utf-8", "surrogateescape")
    found: list[int] = []
    for unit in range(first, last):
        for part in range(RING_POINTS // _POINTS_PER_DIGEST):
            digest = blake2b(name, digest_size=64, salt=struct.pack("<QQ", unit, part)).digest()
            found += struct.unpack("<8Q", digest)
    return found
