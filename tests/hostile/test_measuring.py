"""The control run of `make hostile` takes the machine when the attack did."""

from __future__ import annotations

import os
import time

import pytest

from tests.hostile.measuring import FORK, Burnt, Pace, Watch


def test_what_was_spent_at_once_is_spent_at_once() -> None:
    burst = Burnt(400.0, Pace([7.0, 7.0, 17.0, 17.0, 17.0]))
    assert [burst.by(part) for part in (0, 0.25, 0.375, 0.5, 1, 2)] == [0, 0, 200, 400, 400, 400]


@pytest.mark.parametrize("totals", [[], [3.0, 3.0, 3.0]])
def test_what_has_no_pace_is_spent_evenly(totals: list[float]) -> None:
    assert [Pace(totals).at(part) for part in (0, 0.5, 1)] == [0, 0.5, 1]


def test_the_pace_of_a_process_is_that_of_its_cpu() -> None:
    sent = FORK.RawValue("Q", 0)
    watch = Watch({"own": os.getpid(), "ended": 2**22 + 1}, sent)
    used = time.process_time()
    while time.process_time() - used < 0.2:
        sent.value += 1
    paces = watch.end()
    assert paces["own"].at(0) == 0 and paces["own"].at(1) == 1
    assert paces["sent"].at(1) == 1
    assert paces["ended"].at(0.5) == 0.5
