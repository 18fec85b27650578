"""Things that are found in steps, so that a caller who serves others can do one at a time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.kernel.reached import Reached

Found = tuple[Any, ...]
Steps = Generator[None, None, Found | Reached]


class Pause(float):
    """What a step yields where it has to wait: seconds until the next one is of use."""

    __slots__ = ()


UNTIL_WRITTEN = Pause(0.005)
"""Until less waits for the disk: rounds of many queues take some milliseconds each."""


def first_step(steps: Steps) -> Found | Reached | Steps:
    """What is found, if one step finds it all; else the steps that remain."""
    try:
        next(steps)
    except StopIteration as end:
        found: Found | Reached = end.value
        return found
    return steps


def complete(found: Found | Reached | Steps) -> Found:
    """What all steps find, or found already."""
    while not isinstance(found, (tuple, Reached)):
        found = first_step(found)
    return tuple(found)
