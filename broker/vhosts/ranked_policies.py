"""The policies of one vhost, or its operator policies, in their rank."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.access.patterns import Pattern, octets_of
from broker.vhosts.pattern_steps import PatternSteps

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
        self._lengths: list[int] = []
        """Of the prefixes, each once."""
        self.steps = PatternSteps()

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
        self.steps.put(name, compiled.pattern)
        prefix = compiled.pattern.prefix
        row = self._by_prefix.get(prefix)
        if row is None:
            row = self._by_prefix[prefix] = []
            if len(prefix) not in self._lengths:
                insort(self._lengths, len(prefix))
        insort(row, compiled, key=_rank_of)
        return old.policy if old is not None else None

    def remove(self, name: str) -> Policy:
        """Raises KeyError if there is none of this name."""
        gone = self._by_name.pop(name)
        self._take_out(gone)
        self.steps.remove(name)
        return gone.policy

    def _take_out(self, gone: Compiled) -> None:
        row = self._by_prefix[gone.pattern.prefix]
        del row[bisect_left(row, _rank_of(gone), key=_rank_of)]
        if not row:
            del self._by_prefix[gone.pattern.prefix]
            self._lengths = sorted({len(prefix) for prefix in self._by_prefix})

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
        self.steps = PatternSteps()
        while self._by_name:
            for _ in range(min(64, len(self._by_name))):
                self._by_name.popitem()
            yield
