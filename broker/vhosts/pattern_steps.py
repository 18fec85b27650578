"""What the patterns of a vhost's policies come to for one name, which is compared with them in one
turn of the loop."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.access.patterns import Pattern


class PatternSteps:
    """Sums of `Pattern.steps` by what patterns begin with. It keeps no pattern, so that a copy of
    those of 5,000 policies takes little, and nothing when it goes."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[bytes, int]] = {}
        self._sums: dict[bytes, int] = {}
        self._prefixes: list[bytes] = []
        """In order: those that begin with one follow it."""
        self._lengths: list[int] = []
        """Of the prefixes, each once."""

    def copy(self) -> PatternSteps:
        """The same, to be put to the test together with others."""
        same = PatternSteps()
        same._by_name, same._sums = self._by_name.copy(), self._sums.copy()
        same._prefixes, same._lengths = self._prefixes.copy(), self._lengths.copy()
        return same

    def put(self, name: str, pattern: Pattern) -> None:
        """Counts the pattern of a policy, in the place of its former one."""
        self.remove(name)
        prefix, steps = self._by_name[name] = pattern.prefix, pattern.steps
        if prefix not in self._sums:
            self._sums[prefix] = 0
            insort(self._prefixes, prefix)
            if len(prefix) not in self._lengths:
                insort(self._lengths, len(prefix))
        self._sums[prefix] += steps

    def remove(self, name: str) -> None:
        """A policy goes; harmless if it was not there."""
        prefix, steps = self._by_name.pop(name, (b"", 0))
        if not steps:
            return
        self._sums[prefix] -= steps
        if not self._sums[prefix]:
            del self._sums[prefix]
            del self._prefixes[bisect_left(self._prefixes, prefix)]
            self._lengths = sorted({len(each) for each in self._prefixes})

    def most_with(self, name: str, pattern: Pattern) -> int:
        """Steps of all patterns that one name may be compared with, with this policy's: the most
        that it is for any name."""
        old = self._by_name.get(name, (b"", 0))
        prefix = pattern.prefix
        most = self._sum_for(prefix, old)
        at = bisect_left(self._prefixes, prefix)
        while at < len(self._prefixes) and self._prefixes[at].startswith(prefix):
            most = max(most, self._sum_for(self._prefixes[at], old))
            at += 1
        return most + pattern.steps

    def _sum_for(self, begin: bytes, old: tuple[bytes, int]) -> int:
        """Steps of the patterns that a name beginning so is compared with for it, without those of
        the policy that is replaced."""
        lengths = self._lengths[: bisect_right(self._lengths, len(begin))]
        steps = sum(self._sums.get(begin[:length], 0) for length in lengths)
        return steps - old[1] if begin.startswith(old[0]) else steps
