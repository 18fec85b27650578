"""Long work beside others: what one turn of the loop may take of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from broker.server import pace
from broker.server.pace import Pace

STEP_S = 0.00009


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that goes only where the test lets it."""
    clock = SimpleNamespace(now=1.0)
    monkeypatch.setattr(pace, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


async def longest_turn(clock: SimpleNamespace, workers: int, steps: int) -> float:
    """The most that a turn took of so many works, each of so many steps."""

    async def work() -> None:
        pace = Pace()
        await pace()
        for _ in range(steps):
            clock.now += STEP_S
            await pace()

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    longest = 0.0
    while not all(task.done() for task in tasks):
        before = clock.now
        await asyncio.sleep(0)
        longest = max(longest, clock.now - before)
    assert clock.now == pytest.approx(1.0 + workers * steps * STEP_S)
    return longest


@pytest.mark.parametrize(("workers", "steps"), [(1, 40), (30, 1), (30, 5)])
async def test_a_turn_takes_one_slice_however_many_begin_in_it(
    clock: SimpleNamespace, workers: int, steps: int
) -> None:
    assert await longest_turn(clock, workers, steps) <= 0.0002 + STEP_S


async def test_who_was_cancelled_holds_up_nobody(clock: SimpleNamespace) -> None:
    async def work() -> None:
        pace = Pace()
        for _ in range(10):
            clock.now += 1
            await pace()

    first, second = asyncio.create_task(work()), asyncio.create_task(work())
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()
