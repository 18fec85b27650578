"""Who changes a policy gets an answer, however long it takes until it has reached all queues."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.server.policy_sweep import PolicySweep

PATIENT_S = 60.0


class VHost:
    """One whose queues take as long as the test wants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_held = False
        self.sweeps = 0

    def apply_policies(self) -> Iterator[None]:
        self.sweeps += 1
        while self.is_held:
            yield


@pytest.fixture
def vhosts() -> dict[str, VHost]:
    return {name: VHost(name) for name in ("large", "small")}


@pytest.fixture
async def sweep(vhosts: dict[str, VHost]) -> Any:
    broker: Any = SimpleNamespace(vhosts=vhosts)
    made = PolicySweep(broker)
    yield made
    await made.close()


async def test_a_small_sweep_is_waited_for(sweep: PolicySweep, vhosts: dict[str, VHost]) -> None:
    assert await sweep.over(["small"], PATIENT_S)
    sweep.begin("small")
    assert await sweep.over(["small"], PATIENT_S)
    assert vhosts["small"].sweeps == 1


async def test_a_long_sweep_is_not_waited_for_to_its_end(
    sweep: PolicySweep, vhosts: dict[str, VHost]
) -> None:
    vhosts["large"].is_held = True
    sweep.begin("large")
    assert not await sweep.over(["large"], 0.01)
    vhosts["large"].is_held = False
    assert await sweep.over(["large"], PATIENT_S)


async def test_a_long_sweep_holds_up_no_other_virtual_host(
    sweep: PolicySweep, vhosts: dict[str, VHost]
) -> None:
    vhosts["large"].is_held = True
    sweep.begin("large")
    sweep.begin("small")
    assert await sweep.over(["small"], PATIENT_S)
    assert not await sweep.over(["small", "large"], 0.01)


async def test_changes_during_a_sweep_begin_one_more(
    sweep: PolicySweep, vhosts: dict[str, VHost]
) -> None:
    vhosts["large"].is_held = True
    sweep.begin("large")
    assert not await sweep.over(["large"], 0.01)
    for _ in range(3):
        sweep.begin("large")
    vhosts["large"].is_held = False
    assert await sweep.over(["large"], PATIENT_S)
    assert vhosts["large"].sweeps == 2
