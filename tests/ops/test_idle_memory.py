"""A process that was busy gives its memory back when it is idle."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest

from management import memory
from management.memory import LOOK_S, Idleness


class Held:
    """Something that can hold itself."""

    itself: Any = None


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """CPU seconds of this process, as it is told of them."""
    told = [1.0]
    monkeypatch.setattr(time, "process_time", lambda: told[0])
    return told


def test_it_is_told_once_that_the_process_is_idle_after_work(used: list[float]) -> None:
    idleness = Idleness()
    assert idleness.began()  # the start was work
    assert not idleness.began()
    used[0] += LOOK_S / 2
    assert not idleness.began()
    assert idleness.began()
    assert not idleness.began()


async def test_what_requests_left_in_circles_goes_when_the_process_is_idle(
    used: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(memory, "LOOK_S", 0.001)
    monkeypatch.setattr(memory, "give_memory_back", lambda: loop.call_soon_threadsafe(given.set))
    task = asyncio.create_task(memory.give_back_when_idle())
    await asyncio.sleep(0)  # what is there now is kept out of the collector
    held = Held()
    held.itself = held
    alive = weakref.ref(held)
    del held
    try:
        await asyncio.wait_for(given.wait(), 30)
    finally:
        task.cancel()
        gc.unfreeze()
    assert alive() is None
