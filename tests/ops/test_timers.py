"""The broker's one timer, on a loop whose clock the test moves."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from broker.server.timers import TimingWheel


class Handle:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when, self.callback, self.cancelled = when, callback, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """As much of a loop as the wheel asks for: a clock and one pending call."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.turns = 0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        self.handles.append(Handle(when, callback))
        return self.handles[-1]

    def run_to(self, end: float) -> None:
        """Moves the clock from one call to the next, up to `end`."""
        while due := [each for each in self.handles if not each.cancelled and each.when <= end]:
            first = min(due, key=lambda each: each.when)
            self.handles.remove(first)
            self.now = max(self.now, first.when)
            self.turns += 1
            first.callback()
        self.now = end


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def wheel(loop: Any) -> TimingWheel:
    wheel = TimingWheel()
    wheel.start(loop)
    return wheel


def late_most(method: str, seconds: float) -> float:
    return 0.001 if method == "punctual" else max(0.01, min(0.01 * seconds, 0.128))


@pytest.mark.parametrize("method", ["punctual", "later"])
def test_it_calls_no_earlier_than_asked_and_soon_after(
    loop: Loop, wheel: TimingWheel, method: str
) -> None:
    chance = random.Random(1)
    lateness: list[float] = []
    too_late: list[float] = []

    def note(due: float, most: float) -> Callable[[], None]:
        def called() -> None:
            lateness.append(loop.now - due)
            too_late.extend(lateness[-1:] if lateness[-1] > most + 1e-6 else [])

        return called

    for _ in range(500):
        loop.run_to(loop.now + chance.random() / 100)
        seconds = chance.choice((0, 0.0001, 0.3, 1, 30, 86_400)) * chance.random()
        getattr(wheel, method)(seconds, note(loop.now + seconds, late_most(method, seconds)))
    loop.run_to(loop.now + 100_000)
    assert len(lateness) == 500
    assert min(lateness) >= 0
    assert too_late == []


def test_coarse_timers_wake_the_loop_together(loop: Loop, wheel: TimingWheel) -> None:
    fired: list[float] = []
    for number in range(1000):
        wheel.later(5 + number / 10_000, lambda: fired.append(loop.now))
    loop.run_to(loop.now + 10)
    assert len(fired) == 1000
    assert len(set(fired)) <= 12


def test_heartbeats_of_many_connections_wake_the_loop_some_times_a_second(
    loop: Loop, wheel: TimingWheel
) -> None:
    fired: list[float] = []
    for number in range(3000):
        wheel.later(30 + number / 1000, lambda: fired.append(loop.now))
    loop.run_to(loop.now + 40)
    assert len(fired) == 3000
    assert len(set(fired)) <= 3 * 8 + 1


def test_many_that_are_due_at_once_are_called_in_order_and_in_several_turns(
    loop: Loop, wheel: TimingWheel
) -> None:
    called: list[tuple[int, int]] = []

    def work(number: int) -> None:
        called.append((number, loop.turns))
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass

    for number in range(20):
        wheel.punctual(0.5 if number < 10 else 0.6, partial(work, number))
    loop.now += 1  # the loop was held up
    loop.run_to(loop.now)
    assert [number for number, _ in called] == list(range(20))
    assert len({turn for _, turn in called}) >= 10


def test_a_cancelled_timer_is_not_called(loop: Loop, wheel: TimingWheel) -> None:
    called: list[str] = []
    wheel.punctual(0.5, lambda: called.append("kept"))
    wheel.punctual(0.5, lambda: called.append("cancelled")).cancel()
    loop.run_to(loop.now + 1)
    assert called == ["kept"]


def test_a_callback_that_fails_stops_no_other(loop: Loop, wheel: TimingWheel) -> None:
    called: list[str] = []

    def fail() -> None:
        raise RuntimeError("on purpose")

    wheel.punctual(0.5, fail)
    wheel.punctual(0.5, lambda: called.append("same slot"))
    wheel.punctual(0.7, lambda: called.append("later"))
    loop.run_to(loop.now + 1)
    assert called == ["same slot", "later"]


def test_a_timer_may_set_the_next_one(loop: Loop, wheel: TimingWheel) -> None:
    times: list[float] = []
    began = loop.now

    def again() -> None:
        times.append(loop.now)
        if len(times) < 5:
            wheel.punctual(0.001, again)

    wheel.punctual(0.001, again)
    wheel.later(60, lambda: None)
    loop.run_to(began + 1)
    assert len(times) == 5
    assert times[-1] - began <= 0.0101
