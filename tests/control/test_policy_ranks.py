"""Which policy counts is found without a look at all of them, whatever changes."""

from __future__ import annotations

import random

import pytest

from broker.access import BadSetting
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


def test_patterns_that_a_name_is_compared_with_are_bounded_together() -> None:
    """5,000 that begin with no letter took 23 ms of a turn, for each queue that was declared."""
    policies = Policies(SettingsFiles("/data", MemoryDisk()), steps_most=100)
    steps = Pattern("b$").steps
    for number in range(100 // steps):
        put(policies, f"p{number}", "b$")
    with pytest.raises(BadSetting, match=r"policy_steps_max.*begin with \^"):
        put(policies, "more", "b$")
    with pytest.raises(BadSetting, match="policy_steps_max"):
        put(policies, "more", "^ab")  # names that begin so are compared with all others as well
    assert policies.get("/", "more") is None
    put(policies, "more", "b$", operator=True)
    put(policies, "more", "b$", vhost="t")
    put(policies, "p1", "b$", priority=3)  # another definition, the same pattern
    put(policies, "p1", "a$")
    policies.delete("/", "p0")
    put(policies, "more", "b$")


def test_patterns_that_begin_otherwise_do_not_count_for_each_other() -> None:
    policies = Policies(SettingsFiles("/data", MemoryDisk()), steps_most=60)
    steps = Pattern("^a0.").steps
    for number in range(10, 90):
        put(policies, f"p{number}", f"^a{number}.")
    for name in range(60 // steps - 1):
        put(policies, f"q{name}", "^a10.")
    with pytest.raises(BadSetting, match="policy_steps_max"):
        put(policies, "more", "^a10.")
    with pytest.raises(BadSetting, match="policy_steps_max"):
        put(policies, "more", "^a.")  # whose names may begin with a10
    put(policies, "more", "^a11.")


def test_stored_policies_above_the_bound_are_loaded_and_can_be_changed() -> None:
    disk = MemoryDisk()
    before = Policies(SettingsFiles("/data", disk))
    for number in range(30):
        put(before, f"p{number}", "b$")
    before._files.flush()
    policies = Policies(SettingsFiles("/data", disk), steps_most=100)
    policies.load()
    assert len(policies.all()) == 30
    put(policies, "p1", "b$", {"max-length": 7})
    with pytest.raises(BadSetting, match="policy_steps_max"):
        put(policies, "p1", "a$")
    policies.delete("/", "p1")


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
