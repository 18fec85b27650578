"""Which policy counts is found without a look at all of them, whatever changes."""

from __future__ import annotations

import random

import pytest

from broker.access.patterns import Pattern
from broker.settings.files import SettingsFiles
from broker.vhosts.policies import Policies
from tests.control.disks import MemoryDisk
from tests.control.test_policies import put

PATTERNS = (".*", "^a", "^ab", "^abc", "^b", "b$", "^(?!ab).*", "^a|^b", "^abc$", "[bc]")


def best(policies: Policies, name: str) -> str | None:
    """The name of the one that counts, found by a look at all."""
    fitting = [each for each in policies.all() if Pattern(each.pattern).matches(name)]
    fitting.sort(key=lambda each: (-each.priority, each.name))
    return fitting[0].name if fitting else None


def test_the_first_in_rank_counts_whatever_the_patterns_begin_with_and_whatever_changes() -> None:
    chance, policies = random.Random(11), Policies(SettingsFiles("/data", MemoryDisk()))
    for _ in range(600):
        name = f"p{chance.randrange(40)}"
        if chance.random() < 0.5 and policies.get("/", name) is not None:
            policies.delete("/", name)
        else:
            put(policies, name, chance.choice(PATTERNS), priority=chance.randrange(9))
        of = chance.choice(("", "a", "ab", "abc", "abcd", "b", "cab", "x"))
        found = policies.of("/", "queue", of, "classic")
        assert (found.name if found else None) == best(policies, of)


def test_a_name_is_compared_with_those_policies_that_may_concern_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With each of 5,000 it was 10 ms of a turn on a busy machine, for each queue."""
    policies = Policies(SettingsFiles("/data", MemoryDisk()))
    for number in range(200):
        put(policies, f"p{number}", f"^q{number}x")
    compared: list[str] = []
    matches = Pattern.matches_octets

    def noted(pattern: Pattern, octets: bytes) -> bool:
        compared.append(pattern.text)
        return matches(pattern, octets)

    monkeypatch.setattr(Pattern, "matches_octets", noted)
    found = policies.of("/", "queue", "q77x", "classic")
    assert found is not None
    assert found.name == "p77"
    assert compared == ["^q77x"]


def test_policies_of_a_deleted_vhost_count_no_more_and_are_freed_in_steps() -> None:
    policies = Policies(SettingsFiles("/data", MemoryDisk()))
    for number in range(200):
        put(policies, f"p{number}", priority=number)
    steps = policies.forget_vhost("/")
    assert policies.of("/", "queue", "q", "classic") is None
    assert (policies.all(), policies.how_many("/")) == ([], 0)
    put(policies, "new")
    assert len(list(steps)) > 3
    assert [each.name for each in policies.all()] == ["new"]
