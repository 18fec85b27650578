"""A sleep of the loop ends with the round in flight where more comes so, and nowhere else: the
rule, with a publisher on a clock that the test sets.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.kernel.waking import Waking

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000


class Publisher:
    """In each cycle the loop sleeps once. `cycle(is_early)` says how long a cycle takes (ns) and
    how many frames come in it."""

    def __init__(self, cycle: Callable[[bool], tuple[int, int]]) -> None:
        self.cycle = cycle
        self.waking = Waking()
        self.now = 100 * SECOND

    def run(self, nanoseconds: int) -> float:
        """Which part of the sleeps ended early in so much time."""
        until, early, all_of_them = self.now + nanoseconds, 0, 0
        while self.now < until:
            is_early = self.waking.is_early(self.now)
            length, frames = self.cycle(is_early)
            self.now += length
            self.waking.frames += frames
            early += is_early
            all_of_them += 1
        return early / all_of_them


def waits_for_confirms(is_early: bool) -> tuple[int, int]:
    """A window of ten messages is confirmed when its round is over, or after the sleep."""
    return (200 if is_early else 240) * US, 30


def at_a_rate(is_early: bool) -> tuple[int, int]:
    """Five messages come in 100 µs in any case."""
    return (140 * US, 21) if is_early else (200 * US, 30)


def test_sleeps_end_early_where_a_publisher_sends_more_when_it_is_confirmed_sooner() -> None:
    publisher = Publisher(waits_for_confirms)
    publisher.run(SECOND // 5)
    assert publisher.run(10 * SECOND) > 0.94


def test_sleeps_are_whole_where_a_publisher_sends_at_a_rate_of_its_own() -> None:
    publisher = Publisher(at_a_rate)
    publisher.run(SECOND // 5)
    assert publisher.run(10 * SECOND) < 0.06


def test_a_rate_that_varies_a_little_is_not_taken_for_a_gain() -> None:
    chance = random.Random(1)

    def cycle(is_early: bool) -> tuple[int, int]:
        length, frames = at_a_rate(is_early)
        return length, frames + chance.choice((-9, -3, 0, 3, 9))

    publisher = Publisher(cycle)
    publisher.run(SECOND // 5)
    assert publisher.run(10 * SECOND) < 0.06


@pytest.mark.parametrize("seconds", [1, 7])
def test_another_kind_of_publisher_is_found_out_within_two_seconds(seconds: int) -> None:
    publisher = Publisher(at_a_rate)
    publisher.run(seconds * SECOND)
    publisher.cycle = waits_for_confirms
    publisher.run(2 * SECOND)
    assert publisher.run(SECOND) > 0.9
    publisher.cycle = at_a_rate
    publisher.run(2 * SECOND)
    assert publisher.run(SECOND) < 0.1


def test_behind_a_pause_it_is_found_out_anew_at_once() -> None:
    publisher = Publisher(at_a_rate)
    publisher.run(SECOND // 2)
    publisher.now += SECOND
    publisher.cycle = waits_for_confirms
    publisher.run(SECOND // 5)
    assert publisher.run(SECOND // 2) == 1.0
