"""The rate of a transfer, by a clock that the test moves."""

from __future__ import annotations

import pytest

from broker.features.transfer.pace import NO_LIMIT, Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def handed_in(pace: Pace, clock: Clock, seconds: float, handed: int = 0) -> int:
    """How many messages a transfer hands over that always takes all it may."""
    until = clock.now + seconds
    while clock.now < until:
        handed = max(handed, pace.allowed(handed))
        clock.now += pace.wait_s
    return handed


@pytest.mark.parametrize("rate", [1, 3, 50, 1000, 10_000_000])
def test_over_a_while_it_allows_the_rate(rate: int) -> None:
    clock = Clock()
    handed = handed_in(Pace(rate, clock), clock, 60.0)
    assert rate * 60 - rate / 5 - 2 <= handed <= rate * 60 + rate / 5 + 2


def test_what_was_held_up_is_not_made_up_for() -> None:
    clock = Clock()
    pace = Pace(100, clock)
    handed = pace.allowed(0)
    clock.now += 3600.0
    assert pace.allowed(handed) - handed == 10


def test_a_transfer_that_takes_less_than_it_may_gets_no_more_at_once() -> None:
    clock = Clock()
    pace = Pace(1000, clock)
    handed = 0
    for _ in range(1000):
        handed = min(handed + 1, pace.allowed(handed))
        clock.now += 0.01
    assert pace.allowed(handed) - handed <= 100


def test_no_rate_is_no_limit() -> None:
    assert Pace(0).allowed(17) == NO_LIMIT and Pace(0).wait_s == 0.0
