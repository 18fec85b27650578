"""Faults planted in the broker, one at a time: whatever looks for faults has to find each."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from broker.store import disk
from broker.store.recorder import PLANTS
from tests.crash.explore import explore
from tests.crash.fuzz import fuzz

SEEDS = (4, 3, 10, 6, 1, 2, 5, 7)
EXPLORED = {
    "no sync": "lost",
    "no directory sync": "lost",
    "confirm before the write": "lost",
    "confirm before the sync": "lost",
    "skip the last record": "lost",
    "keep acks": "stray",
    "reuse numbers": "given twice",
    "requeue at the end": "gave",
    "hand over unsynced": "lost",
}
"""Fault -> a word of what the crash states show."""


@pytest.fixture
def plant() -> Iterator[Callable[[str], None]]:
    """A function that plants a fault until the test ends."""
    yield disk.plant
    disk.plant("none")
    disk.fail("write", 0, 0)


def seen_by_states(seed: int, wanted: int = 60) -> list[str]:
    """What a short exploration finds; an order that is wrong at once ends it."""
    try:
        return explore(seed, steps=60, wanted=wanted, only=("queues",)).violations
    except AssertionError as error:
        return [str(error)]


@pytest.mark.parametrize("fault", EXPLORED)
def test_the_crash_states_show(plant: Callable[[str], None], fault: str) -> None:
    plant(fault)
    found = []
    for seed in SEEDS:
        found += [each for each in seen_by_states(seed) if EXPLORED[fault] in each]
        if found:
            break
    assert found


def test_damaged_files_show_that_nothing_is_checked(plant: Callable[[str], None]) -> None:
    plant("no check")
    assert any("altered" in each for seed in SEEDS for each in fuzz(seed, 40).violations)


def test_a_full_disk_that_is_ignored_shows(plant: Callable[[str], None]) -> None:
    """Which write it is depends on the threads: a message is lost, another one is given in its
    place, or a start tells of damage."""
    plant("ignore a full disk")
    disk.fail("write", 12, errno.ENOSPC)
    assert seen_by_states(3)


def test_every_fault_that_can_be_planted_is_looked_for() -> None:
    elsewhere = {"none", "no check", "ignore a full disk", "confirm one more"}
    assert set(PLANTS) == EXPLORED.keys() | elsewhere
    assert len(PLANTS) == 1 + 12
