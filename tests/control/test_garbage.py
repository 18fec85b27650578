"""Python's garbage collector walks over everything only when memory says that it is worth while."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from broker.process import garbage
from broker.process.garbage import Garbage, release
from broker.server import loop
from broker.server.app import Broker
from broker.settings.config import Config
from management import web
from management.event_loop import EventLoop
from tests import inside


class Held:
    """Something that can hold itself."""

    itself: Any = None


class Machine:
    """A clock and a memory that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.blocks = 1_000_000
        self.walk_takes = 0.0

    def clock(self) -> float:
        """Each look is a walk's beginning or its end."""
        self.now += self.walk_takes
        return self.now


@pytest.fixture
def walks() -> Iterator[list[int]]:
    """The generations of collections since the test began; all is as it was afterwards."""
    seen: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop":
            seen.append(about["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def started(walks: list[int], machine: Machine) -> Iterator[Garbage]:
    """Started at second 0."""
    found = Garbage(clock=machine.clock, blocks=lambda: machine.blocks)
    found.start(0.0)
    walks.clear()
    yield found
    found.stop()


def old(count: int = 1) -> list[Held]:
    """Objects that refer to themselves and are in the oldest generation."""
    made = [Held() for _ in range(count)]
    for held in made:
        held.itself = held
    gc.collect(1)
    return made


def freeze(machine: Machine, takes: float = garbage.LONG_WALK_S * 2) -> None:
    """Lets a walk over what is younger than the start take too long."""
    machine.walk_takes = takes
    gc.collect()
    machine.walk_takes = 0.0


def test_a_walk_does_not_look_at_what_was_there_at_the_start(started: Garbage) -> None:
    assert len(gc.get_objects(generation=2)) < 100
    assert gc.get_freeze_count() > 10_000


def test_what_dies_old_is_found_while_walks_are_short(started: Garbage) -> None:
    held = weakref.ref(old()[0])
    assert held() is not None
    gc.collect()
    assert held() is None


def test_a_long_walk_freezes_what_it_keeps(started: Garbage, machine: Machine) -> None:
    kept = old(garbage.KEPT_MIN)
    freeze(machine)
    assert len(gc.get_objects(generation=2)) < 100
    assert len(kept) == garbage.KEPT_MIN


def test_a_walk_that_was_long_because_of_what_it_gave_back_freezes_nothing(
    started: Garbage, machine: Machine
) -> None:
    kept = old()
    old(garbage.KEPT_MIN)
    freeze(machine)
    died = weakref.ref(kept.pop())
    gc.collect()
    assert died() is None


def test_a_walk_over_few_large_objects_freezes_them(started: Garbage, machine: Machine) -> None:
    kept = [[object] * 1000]
    gc.collect(1)
    freeze(machine, garbage.LONG_IN_ANY_CASE_S * 2)
    assert not any(each is kept[0] for each in gc.get_objects())


def test_a_walk_that_a_busy_machine_made_long_freezes_no_few_objects(
    started: Garbage, machine: Machine
) -> None:
    """What dies of them in a circle would stay, a little of each connection."""
    died = weakref.ref(old()[0])
    kept = old()
    freeze(machine)
    gc.collect()
    assert died() is None
    assert len(kept) == 1


@pytest.fixture
def frozen(started: Garbage, machine: Machine) -> weakref.ref[Held]:
    """An object in a circle that died frozen, which only a walk over all finds."""
    kept = old(garbage.KEPT_MIN)
    freeze(machine)
    died = weakref.ref(kept[0])
    del kept
    gc.collect()
    assert died() is not None
    return died


Grow = Callable[[Machine], None]


def test_it_does_not_walk_over_all_while_memory_stays(
    started: Garbage, frozen: weakref.ref[Held]
) -> None:
    for hour in range(1, 25):
        started.tick(3600.0 * hour, is_quiet=True)
    assert frozen() is not None


def test_it_walks_over_all_when_memory_has_grown_and_no_client_is_connected(
    started: Garbage,
    machine: Machine,
    frozen: weakref.ref[Held],
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine.blocks += garbage.QUIET_GROWTH
    started.tick(100.0, is_quiet=False)
    assert frozen() is not None
    with caplog.at_level(logging.INFO, "leveret.garbage"):
        started.tick(200.0, is_quiet=True)
    assert frozen() is None
    assert "objects held 1250000 blocks of memory, 1000000 after the last walk" in caplog.text


def test_clients_wait_for_it_only_when_memory_is_short_and_has_grown_much(
    started: Garbage, machine: Machine, frozen: weakref.ref[Held]
) -> None:
    machine.blocks += 10 * garbage.GROWTH
    started.tick(100.0, is_quiet=False)
    assert frozen() is not None
    machine.blocks -= 9 * garbage.GROWTH + 1
    started.tick(200.0, is_quiet=False, is_short=True)
    assert frozen() is not None
    machine.blocks += 1
    started.tick(300.0, is_quiet=False, is_short=True)
    assert frozen() is None


def test_it_walks_once_for_each_growth(
    started: Garbage, machine: Machine, frozen: weakref.ref[Held], walks: list[int]
) -> None:
    machine.blocks += garbage.GROWTH
    started.tick(100.0, is_quiet=True)
    walks.clear()
    kept = old(garbage.KEPT_MIN)
    freeze(machine)
    walks.clear()
    for second in range(200, 2000, 60):
        started.tick(float(second), is_quiet=True)
    # When it is idle what is young is walked over once; a walk over all is two.
    assert walks.count(2) <= 1
    assert kept


def test_it_looks_at_memory_once_a_minute(
    started: Garbage, machine: Machine, frozen: weakref.ref[Held]
) -> None:
    machine.blocks += garbage.GROWTH
    started.tick(garbage.LOOK_EVERY_S - 1, is_quiet=True)
    assert frozen() is not None
    started.tick(garbage.LOOK_EVERY_S, is_quiet=True)
    assert frozen() is None


def test_the_collector_is_left_as_it_was() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    found = Garbage()
    found.start(0.0)
    assert gc.get_threshold() != before[0]
    found.stop()
    assert (gc.get_threshold(), list(gc.callbacks)) == before
    assert gc.get_freeze_count() == 0


def test_a_released_transport_keeps_none_of_its_own_methods() -> None:
    class Transport:
        def __init__(self) -> None:
            self._read_ready_cb = self.read
            self.other = 1

        def read(self) -> None: ...

    gc.disable()
    try:
        transport = Transport()
        gone = weakref.ref(transport)
        release(transport)
        assert transport.other == 1
        del transport
        assert gone() is None
    finally:
        gc.enable()


def test_an_idle_process_gives_freed_memory_back_once_after_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = 1.0
    monkeypatch.setattr(time, "process_time", lambda: used)
    given: list[int] = []
    begun = Garbage(lambda: given.append(second))
    begun.start(0.0)
    try:
        for second in range(100):
            begun.tick(float(second), is_quiet=False)
        assert given == [garbage.GIVE_BACK_EVERY_S]  # what the start took
        for second in range(100, 200):
            used += 0.5
            begun.tick(float(second), is_quiet=False)
        assert len(given) == 1
        for second in range(200, 400):
            begun.tick(float(second), is_quiet=False)
        assert given[1:] == [200 + garbage.IDLE_S - 1]
    finally:
        begun.stop()


def test_a_walk_looks_at_few_objects_while_a_process_grows(
    started: Garbage, machine: Machine
) -> None:
    """Ten thousand take 2 ms of a turn, on a busy machine 8: caches do not hold them."""
    machine.walk_takes = garbage.LONG_WALK_S * 2
    looked_at: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 2:
            looked_at.append(len(gc.get_objects()))

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(50_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 50_000
    assert looked_at
    assert max(looked_at) < 7_000


def test_what_takes_the_place_of_something_is_collected_though_python_counts_none_more(
    started: Garbage, walks: list[int]
) -> None:
    """A message of 4,000 headers comes as another one goes."""
    kept = [[number] for number in range(1000)]
    gc.collect(1)
    walks.clear()
    for number in range(20_000):
        kept[number % 1000] = [number]
    assert len(gc.get_objects(generation=0)) > 900  # all that is left of them
    assert not walks
    started.walk_over_young()
    assert len(gc.get_objects(generation=0)) < 100
    assert walks == [0]


def test_what_outlives_walks_over_the_young_has_its_turn_by_the_time_that_they_took(
    started: Garbage, machine: Machine, walks: list[int]
) -> None:
    for _ in range(5):
        started.walk_over_young()
    assert walks == [0] * 5  # nothing came between
    walks.clear()
    machine.walk_takes = max(garbage.YOUNG_WALKS_S, garbage.MIDDLE_WALKS_S)
    for _ in range(6):
        started.walk_over_young()
    assert walks == [0, 1, 2, 0, 1, 2]


def test_no_walk_is_made_while_the_collector_is_switched_off(
    started: Garbage, walks: list[int]
) -> None:
    gc.disable()
    try:
        started.walk_over_young()
    finally:
        gc.enable()
    assert not walks


async def walked(loops: Any) -> int:
    """How often what has come is walked over in a hundred turns of a millisecond each."""
    walks: list[int] = []
    loops.walk_over_young = lambda: walks.append(1)
    for _ in range(100):
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass
        await asyncio.sleep(0)
    return len(walks)


def test_the_broker_walks_over_what_has_come_while_it_works(directory: Path) -> None:
    sockets = Broker(inside.settings(directory)).sockets
    sockets.walk_every_ns = garbage.YOUNG_EVERY_NS
    assert 1 < loop.run(sockets, walked(sockets)) <= 100


def test_a_broker_that_only_wakes_now_and_then_does_not(directory: Path) -> None:
    async def wakes() -> int:
        walks: list[int] = []
        sockets.walk_over_young = lambda: walks.append(1)
        for _ in range(50):
            await asyncio.sleep(garbage.YOUNG_EVERY_NS / 1e9)
        return len(walks)

    sockets = Broker(inside.settings(directory)).sockets
    sockets.walk_every_ns = garbage.YOUNG_EVERY_NS
    assert loop.run(sockets, wakes()) < 25


def test_the_web_process_walks_over_it_too() -> None:
    async def work() -> int:
        return await walked(asyncio.get_running_loop())

    with override_settings(APPLIANCE=Config()), asyncio.Runner(loop_factory=EventLoop) as runner:
        assert 1 < runner.run(work()) <= 100


def test_the_web_process_begins_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "Garbage", lambda _: inside.NoGarbage())

    async def work() -> tuple[bool, bool]:
        running: Any = asyncio.get_running_loop()
        collecting = running.create_task(web._collect_garbage([]))
        await asyncio.sleep(0)
        begun = running.walk_over_young is not None
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        return begun, running.walk_over_young is None

    with override_settings(APPLIANCE=Config()), asyncio.Runner(loop_factory=EventLoop) as runner:
        assert runner.run(work()) == (True, True)
