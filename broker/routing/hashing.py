"""Two ways from a hash to one of several weighted destinations: a ring and jump.

Both depend on what is bound only, never on the process: after a restart a key goes where it went
before.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left, bisect_right, insort
from hashlib import blake2b
from itertools import accumulate
from typing import Protocol

from broker.routing.binding import Binding
from broker.settings.bounds import RING_WEIGHT_MAX

# Points on the ring for each unit of weight. A share's standard deviation is about a tenth of the
# share with 96, and falls with the square root of their number.
RING_POINTS = 96
# Places that a unit of weight takes in the ring, each of about 100 bytes; binding it takes 40
# microseconds.
JUMP_WEIGHT_MAX = 2**32 - 1

_POINTS_PER_DIGEST = 8
_RUN = 512
# Fewer new ones than this part of all are inserted one by one.
_MANY_OF = 16


def hash_of(value: str) -> int:
    """64 bits that depend on the text only (BLAKE2b)."""
    return int.from_bytes(
        blake2b(value.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little"
    )


class Spread(Protocol):
    """Weighted destinations."""

    weight_max: int

    def has_room(self, binding: Binding, weight: int, most: int) -> bool:
        """Whether a binding of this weight may be added, or is there already, where all weights
        together may be `most`."""

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
        self._points = Points()
        self._owners: dict[int, tuple[str, str]] = {}
        # Bindings of a destination; it owns points for the sum of their weights.
        self._bindings: dict[tuple[str, str], Bound] = {}
        self._weight = 0

    def has_room(self, binding: Binding, weight: int, most: int) -> bool:
        if self._weight + weight <= most:
            return True
        bound = self._bindings.get((binding.destination_type, binding.destination))
        return bound is not None and binding in bound.bindings

    def add(self, binding: Binding, weight: int) -> None:
        self._weight += weight
        end = (binding.destination_type, binding.destination)
        bound = self._bindings.setdefault(end, Bound())
        points = _points(end, bound.weight, bound.weight + weight)
        bound.weight += weight
        bound.bindings[binding] = binding
        self._owners.update(dict.fromkeys(points, end))
        self._points.add(points)

    def remove(self, binding: Binding, weight: int) -> None:
        self._weight -= weight
        end = (binding.destination_type, binding.destination)
        bound = self._bindings[end]
        bound.weight -= weight
        del bound.bindings[binding]
        if not bound.bindings:
            del self._bindings[end]
        points = _points(end, bound.weight, bound.weight + weight)
        for point in points:
            self._owners.pop(point, None)
        self._points.remove(points)

    def find(self, hashed: int) -> Binding | None:
        point = self._points.following(hashed)
        if point is None:
            return None
        return next(iter(self._bindings[self._owners[point]].bindings.values()))


class Bound:
    """The bindings of one destination and the sum of their weights."""

    __slots__ = ("bindings", "weight")

    def __init__(self) -> None:
        self.bindings: dict[Binding, Binding] = {}
        self.weight = 0


class Points:
    """Numbers in order, in runs of bounded length: what comes or goes costs the same beside many
    others as beside few."""

    def __init__(self) -> None:
        self._runs: list[list[int]] = []
        # The last number of each run.
        self._ends: list[int] = []
        self._count = 0

    def add(self, numbers: list[int]) -> None:
        self._count += len(numbers)
        if len(numbers) * _MANY_OF >= self._count:
            whole = sorted(itertools.chain(*self._runs, numbers))
            self._runs = [whole[at : at + _RUN] for at in range(0, len(whole), _RUN)]
            self._ends = [run[-1] for run in self._runs]
            return
        for number in numbers:
            at = min(bisect_left(self._ends, number), len(self._runs) - 1)
            run = self._runs[at]
            insort(run, number)
            if len(run) > 2 * _RUN:
                self._runs[at : at + 1] = [run[:_RUN], run[_RUN:]]
                self._ends[at : at + 1] = [run[_RUN - 1], run[-1]]
            else:
                self._ends[at] = run[-1]

    def remove(self, numbers: list[int]) -> None:
        """Takes numbers out that are there."""
        self._count -= len(numbers)
        for number in numbers:
            at = bisect_left(self._ends, number)
            run = self._runs[at]
            del run[bisect_left(run, number)]
            if run:
                self._ends[at] = run[-1]
            else:
                del self._runs[at]
                del self._ends[at]

    def following(self, number: int) -> int | None:
        """The first from `number` on, round the end; None if there is none."""
        if not self._runs:
            return None
        at = bisect_left(self._ends, number)
        if at == len(self._runs):
            return self._runs[0][0]
        run = self._runs[at]
        return run[bisect_left(run, number)]


class Jump(Spread):
    """Buckets in the order of binding, as many as a binding's weight. The spread is as even as can
    be and costs no memory; what is added last, or removed last, moves nothing else, but removing
    one before others moves keys among those behind it (Lamping and Veach, A fast, minimal memory,
    consistent hash algorithm, 2014)."""

    weight_max = JUMP_WEIGHT_MAX

    def __init__(self) -> None:
        self._weights: dict[Binding, int] = {}
        # Made when they are asked for: many changes in a row cost no more than one.
        self._buckets: tuple[list[Binding], list[int]] | None = None

    def has_room(self, binding: Binding, weight: int, most: int) -> bool:
        return True

    def add(self, binding: Binding, weight: int) -> None:
        self._weights[binding] = weight
        self._buckets = None

    def remove(self, binding: Binding, weight: int) -> None:
        del self._weights[binding]
        self._buckets = None

    def find(self, hashed: int) -> Binding | None:
        if not self._weights:
            return None
        if self._buckets is None:
            self._buckets = list(self._weights), list(accumulate(self._weights.values()))
        bindings, ends = self._buckets
        return bindings[bisect_right(ends, jump(hashed, ends[-1]))]


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
