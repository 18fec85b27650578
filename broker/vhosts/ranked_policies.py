"""The policies of one vhost, or its operator policies, in their rank."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.access.patterns import Pattern, octets_of

if TYPE_CHECKING:
    from broker.vhosts.policies import Policy


class Compiled(NamedTuple):
    """A policy, and what its pattern is compiled to."""

    policy: Policy
    pattern: Pattern


def _rank_of(compiled: Compiled) -> tuple[int, str]:
    """The lower, the earlier it is looked at."""
    return -compiled.policy.priority, compiled.policy.name


class RankedPolicies:
    """At most one of them is in force for an object: `first`. They are kept by what their patterns
    begin with, so that a name is compared with few of thousands."""

    def __init__(self) -> None:
        self._by_name: dict[str, Compiled] = {}
        self._by_prefix: dict[bytes, list[Compiled]] = {}
        self._steps: dict[bytes, int] = {}
        """Of all patterns with a prefix."""
        self._prefixes: list[bytes] = []
        """In order: those that begin with one follow it."""
        self._lengths: list[int] = []
        """Of the prefixes, each once."""

    def copy(self) -> RankedPolicies:
        """The same policies, to be put to the test together with others."""
        same = RankedPolicies()
        same._by_name = self._by_name.copy()
        same._by_prefix = {prefix: row.copy() for prefix, row in self._by_prefix.items()}
        same._steps = self._steps.copy()
        same._prefixes = self._prefixes.copy()
        same._lengths = self._lengths.copy()
        return same

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Policy]:
        """In the order they were made."""
        return (each.policy for each in self._by_name.values())

    def get(self, name: str) -> Policy | None:
        found = self._by_name.get(name)
        return found.policy if found is not None else None

    def put(self, compiled: Compiled) -> Policy | None:
        """Adds a policy, in the place of one of the same name, which it returns."""
        name = compiled.policy.name
        old = self._by_name.get(name)
        if old is not None:
            self._take_out(old)
        self._by_name[name] = compiled
        self._put_in(compiled)
        return old.policy if old is not None else None

    def remove(self, name: str) -> Policy:
        """Raises KeyError if there is none of this name."""
        gone = self._by_name.pop(name)
        self._take_out(gone)
        return gone.policy

    def _put_in(self, compiled: Compiled) -> None:
        prefix = compiled.pattern.prefix
        row = self._by_prefix.get(prefix)
        if row is None:
            row = self._by_prefix[prefix] = []
            self._steps[prefix] = 0
            insort(self._prefixes, prefix)
            if len(prefix) not in self._lengths:
                insort(self._lengths, len(prefix))
        insort(row, compiled, key=_rank_of)
        self._steps[prefix] += compiled.pattern.steps

    def _take_out(self, gone: Compiled) -> None:
        prefix = gone.pattern.prefix
        row = self._by_prefix[prefix]
        del row[bisect_left(row, _rank_of(gone), key=_rank_of)]
        self._steps[prefix] -= gone.pattern.steps
        if not row:
            del self._by_prefix[prefix], self._steps[prefix]
            del self._prefixes[bisect_left(self._prefixes, prefix)]
            self._lengths = sorted({len(each) for each in self._by_prefix})

    def steps_with(self, compiled: Compiled) -> int:
        """Steps (`Pattern.steps`) of all patterns that one name may be compared with, this policy's
        among them, if it is put: the most that it is for any name."""
        prefix = compiled.pattern.prefix
        old = self._by_name.get(compiled.policy.name)
        if old is not None:
            self._take_out(old)
        most = self._steps_for(prefix)
        at = bisect_left(self._prefixes, prefix)
        while at < len(self._prefixes) and self._prefixes[at].startswith(prefix):
            most = max(most, self._steps_for(self._prefixes[at]))
            at += 1
        if old is not None:
            self._put_in(old)
        return most + compiled.pattern.steps

    def _steps_for(self, begin: bytes) -> int:
        """Steps of the patterns that a name beginning so is compared with for it."""
        lengths = self._lengths[: bisect_right(self._lengths, len(begin))]
        return sum(self._steps.get(begin[:length], 0) for length in lengths)

    def first(self, owner: str, name: str, type: str) -> Policy | None:
        """The one that an object is under. `owner` is queue or exchange."""
        octets = octets_of(name)
        rows = []
        for length in self._lengths:
            if length > len(octets):
                break
            row = self._by_prefix.get(octets[:length])
            if row is not None:
                rows.append(row)
        ranked = rows[0] if len(rows) == 1 else heapq.merge(*rows, key=_rank_of)
        for policy, pattern in ranked:
            if pattern.matches_octets(octets) and policy.fits(owner, type):
                return policy
        return None

    def freed(self) -> Iterator[None]:
        """Gives up all of them, a few a step: five thousand compiled patterns at once are 30 ms."""
        self._by_prefix.clear()
        self._steps.clear()
        self._prefixes.clear()
        while self._by_name:
            for _ in range(min(64, len(self._by_name))):
                self._by_name.popitem()
            yield
