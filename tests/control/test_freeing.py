"""Lists that are kept no more are freed in steps, and work over many things lets others in."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.server import freeing
from broker.server.control.rosters import BindingRoster
from broker.server.freeing import Freeing


class Thing:
    """Counts how many of its kind have gone."""

    gone = 0

    def __del__(self) -> None:
        Thing.gone += 1


class CountingPace:
    """Lets others in at each call, and notes how many things went since the last one."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._gone = Thing.gone

    async def __call__(self) -> None:
        self.steps.append(Thing.gone - self._gone)
        self._gone = Thing.gone
        await asyncio.sleep(0)


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> CountingPace:
    counting = CountingPace()
    monkeypatch.setattr(freeing, "Pace", lambda: counting)
    monkeypatch.setattr(freeing, "_LOOK_AGAIN_S", 0)
    return counting


async def freed(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks)


def freeing_with(tasks: list[asyncio.Task[None]]) -> Freeing:
    return Freeing(lambda work: tasks.append(asyncio.create_task(work)))


async def test_what_a_list_holds_last_goes_in_steps(pace: CountingPace) -> None:
    tasks: list[asyncio.Task[None]] = []
    of_lists = freeing_with(tasks)
    before = Thing.gone
    for _ in range(3):
        of_lists.add([Thing() for _ in range(1000)])
    assert Thing.gone == before
    await freed(tasks)
    assert Thing.gone == before + 3000
    assert max(pace.steps) <= 100


async def test_a_list_that_a_request_has_in_hand_stays_whole(pace: CountingPace) -> None:
    tasks: list[asyncio.Task[None]] = []
    of_lists = freeing_with(tasks)
    things = [Thing() for _ in range(1000)]
    of_lists.add(things)
    of_lists.add(things)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(things) == 1000
    before = Thing.gone
    del things
    await freed(tasks)
    assert Thing.gone == before + 1000
    assert max(pace.steps) <= 100


async def test_a_list_that_stays_in_use_is_left_to_its_users(pace: CountingPace) -> None:
    tasks: list[asyncio.Task[None]] = []
    of_lists = freeing_with(tasks)
    things = [Thing() for _ in range(1000)]
    of_lists.add(things)
    await freed(tasks)
    assert len(things) == 1000
    # Later ones are freed none the less.
    before = Thing.gone
    of_lists.add([Thing() for _ in range(200)])
    await freed(tasks)
    assert Thing.gone == before + 200


async def test_the_bindings_of_many_exchanges_without_any_let_others_in(
    pace: CountingPace,
) -> None:
    exchanges = {
        f"e{number}": SimpleNamespace(name=f"e{number}", changes=1) for number in range(50)
    }
    vhost: Any = SimpleNamespace(
        name="v", exchanges=exchanges, bindings=lambda name: [], has_leaving=False
    )
    roster = BindingRoster(freeing_with([]))
    listed: Any = list(exchanges.values())
    counting: Any = pace
    for _ in range(2):
        pace.steps.clear()
        assert await roster.bring_up(vhost, [], listed, 1, counting) == []
        assert len(pace.steps) >= len(exchanges)
    await roster.end(counting)
