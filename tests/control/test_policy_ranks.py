"""Which policy counts is found without ranking all anew, whatever changes."""

from __future__ import annotations

import random

import pytest

from broker.settings.files import SettingsFiles
from broker.vhosts.policies import Policies
from tests.control.disks import MemoryDisk
from tests.control.test_policies import put


def test_one_of_many_policies_changes_and_the_others_keep_their_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To rank 5,000 anew is a turn of 10 ms."""
    chance, policies = random.Random(11), Policies(SettingsFiles("/data", MemoryDisk()))
    for number in range(40):
        put(policies, f"p{number}", priority=chance.randrange(9))
    assert policies.of("/", "queue", "q", "classic") is not None
    monkeypatch.setattr(Policies, "_rank", None)
    for _ in range(300):
        name = f"p{chance.randrange(40)}"
        if chance.random() < 0.6 and policies.get("/", name) is not None:
            policies.delete("/", name)
        else:
            put(policies, name, priority=chance.randrange(9))
        best = min(policies.all(), key=lambda each: (-each.priority, each.name), default=None)
        found = policies.of("/", "queue", "q", "classic")
        assert (found.policy if found else None) is best
