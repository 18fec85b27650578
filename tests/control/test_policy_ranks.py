"""Which policy counts is found without ranking all anew, whatever changes."""

from __future__ import annotations

import random

import pytest

from broker.settings.files import SettingsFiles
from broker.vhosts.policies import InForce, Policies
from tests import inside
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


def test_only_what_a_change_may_concern_is_looked_up_anew() -> None:
    """Of 5,000 policies the right one takes half a millisecond to find: 50 s for 100,000 queues."""
    chance, policies = random.Random(12), Policies(SettingsFiles("/data", MemoryDisk()))
    names = [f"q{number}" for number in range(60)]
    patterns = [f"^q{number}" for number in range(30)] + ["", "5$", "^nothing"]
    held: dict[str, InForce | None] = dict.fromkeys(names)
    asked = 0
    for _ in range(400):
        for _ in range(chance.choice((1, 1, 1, 3, 40))):
            name, operator = f"p{chance.randrange(20)}", chance.random() < 0.2
            if chance.random() < 0.4 and policies.get("/", name, operator=operator) is not None:
                policies.delete("/", name, operator=operator)
            else:
                pattern = chance.choice(patterns)
                put(policies, name, pattern, priority=chance.randrange(9), operator=operator)
        changes = policies.take_changes("/")
        for name in names:
            now = policies.of("/", "queue", name, "classic")
            if changes.concern(name, held[name]):
                asked += 1
                held[name] = now
            assert held[name] is now
    assert asked < 400 * len(names) * 0.7
    assert not policies.take_changes("/").concern("q1", held["q1"])


async def test_a_sweep_that_ended_early_is_made_up_for() -> None:
    with inside.in_memory() as directory:
        async with inside.running(directory) as broker:
            client, vhost = await inside.connect(broker, "guest"), broker.vhosts["/"]
            for name in ("a", "b"):
                client.call(1, "queue.declare", queue=name)
            await client.fence()
            put(broker.policies, "one", "^[ab]$")
            steps = vhost.apply_policies()
            next(steps)
            del steps  # it failed, or the broker was about to stop
            put(broker.policies, "two", "^nothing$")
            for _ in vhost.apply_policies():
                pass
            assert {vhost.queues[name].policy_name for name in ("a", "b")} == {"one"}
