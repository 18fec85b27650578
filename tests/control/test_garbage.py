"""Python's garbage collector walks over everything only when nobody is served."""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker import garbage
from broker.garbage import Garbage


class Held:
    """Something that can hold itself."""

    itself: Any = None


@pytest.fixture
def walks() -> Iterator[list[int]]:
    """The generations of collections since the test began; all is as it was afterwards."""
    seen: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop":
            seen.append(about["generation"])

    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def started(walks: list[int], monkeypatch: pytest.MonkeyPatch) -> Garbage:
    """Started at second 0 of its clock, in a process that takes no CPU and walks for 0.2 s."""
    monkeypatch.setattr(time, "process_time", lambda: 1.0)
    return begin(walks, monkeypatch, 0.2)


def begin(
    walks: list[int],
    monkeypatch: pytest.MonkeyPatch,
    walk_s: float,
    give_back: Callable[[], object] = lambda: None,
) -> Garbage:
    """Started at second 0 of its clock, in a process whose walks take `walk_s` seconds."""
    told = itertools.count(0.0, walk_s)
    monkeypatch.setattr(time, "thread_time", lambda: next(told))
    found = Garbage(give_back)
    found.start(0.0)
    walks.clear()
    return found


def grow() -> list[list[int]]:
    """More objects than young generations hold."""
    return [[number] for number in range(garbage.YOUNG * garbage.MIDDLE * 12)]


def test_it_freezes_what_grew_without_looking_at_it(started: Garbage, walks: list[int]) -> None:
    before = gc.get_freeze_count()
    grown = grow()
    assert 2 not in walks
    started.tick(1.0)
    assert gc.get_freeze_count() >= before + len(grown)
    assert 2 not in walks


def test_it_walks_over_all_when_idle_and_once(started: Garbage, walks: list[int]) -> None:
    grown = grow()
    for second in range(garbage.WALK_EVERY_S):
        started.tick(float(second))
    assert 2 not in walks
    for second in range(3 * garbage.WALK_EVERY_S):
        started.tick(float(garbage.WALK_EVERY_S + second))
    assert walks.count(2) == 1
    assert grown


def test_it_finds_what_died_frozen(started: Garbage) -> None:
    held = Held()
    held.itself = held
    alive = weakref.ref(held)
    grown = grow()
    started.tick(1.0)
    del held, grown
    for _ in range(3):
        gc.collect(1)
    assert alive() is not None
    for second in range(garbage.WALK_EVERY_S, garbage.WALK_EVERY_S + garbage.IDLE_S + 1):
        started.tick(float(second))
    assert alive() is None


def test_a_busy_broker_waits_for_long(
    started: Garbage, walks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = iter(range(1, 1_000_000))
    monkeypatch.setattr(time, "process_time", lambda: next(busy) * 0.5)
    grown = grow()
    for second in range(0, garbage.WALK_AT_LAST_S, 60):
        started.tick(float(second))
    assert 2 not in walks
    started.tick(float(garbage.WALK_AT_LAST_S))
    assert walks.count(2) == 1
    assert grown


def test_a_small_broker_whose_walk_is_short_walks_sooner(
    walks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "process_time", lambda: 1.0)
    small = begin(walks, monkeypatch, 0.01)
    grown = grow()
    for second in range(50):
        small.tick(float(second))
    assert 2 not in walks
    for second in range(50, 50 + garbage.IDLE_S):
        small.tick(float(second))
    assert walks.count(2) == 1
    assert grown


def test_an_idle_broker_gives_freed_memory_back_once_after_work(
    walks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    used = 1.0
    monkeypatch.setattr(time, "process_time", lambda: used)
    given: list[int] = []
    begun = begin(walks, monkeypatch, 0.2, lambda: given.append(second))
    for second in range(100):
        begun.tick(float(second))
    assert given == [garbage.GIVE_BACK_EVERY_S]  # what the start took
    for second in range(100, 200):
        used += 0.5
        begun.tick(float(second))
    assert len(given) == 1
    for second in range(200, 400):
        begun.tick(float(second))
    assert given[1:] == [200 + garbage.IDLE_S - 1]
