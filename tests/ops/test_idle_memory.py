"""The web process gives its memory back when it is idle after work, and has one policy of garbage
collection."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from broker.process import garbage
from management import web


class Held:
    """Something that can hold itself."""

    itself: Any = None


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """CPU seconds of this process, as it is told of them; it ticks without a pause."""
    told = [1.0]
    monkeypatch.setattr(time, "process_time", lambda: told[0])
    monkeypatch.setattr(garbage, "GIVE_BACK_EVERY_S", 0)
    monkeypatch.setattr(web, "GARBAGE_EVERY_S", 0.001)
    thresholds = gc.get_threshold()
    yield told
    assert gc.get_threshold() == thresholds
    assert gc.get_freeze_count() == 0


async def test_what_requests_left_in_circles_goes_when_the_web_process_is_idle(
    used: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    given = asyncio.Event()
    times: list[int] = []

    def give_back() -> None:
        times.append(1)
        loop.call_soon_threadsafe(given.set)

    monkeypatch.setattr(web, "give_memory_back", give_back)
    task = asyncio.create_task(web._collect_garbage([]))
    try:
        await asyncio.sleep(0)  # what is there now is kept out of the collector
        held = Held()
        held.itself = held
        alive = weakref.ref(held)
        del held
        await asyncio.wait_for(given.wait(), 30)  # the start was work
        assert alive() is None
        given.clear()
        used[0] += 1.0
        await asyncio.wait_for(given.wait(), 30)
        assert len(times) == 2, "once for each time of work"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
