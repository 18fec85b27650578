"""Counts steps of Python code instead of time, so that a test can say how work grows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

HERE = str(Path(__file__).resolve().parents[2] / "broker")


def steps(what: Callable[[], object]) -> int:
    """How many lines of the broker's Python code `what()` carries out, the turns of its loops and
    comprehensions included."""
    count = 0

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if event == "line":
            count += 1
        return line

    def call(frame: FrameType, event: str, argument: object) -> Any:
        return line if frame.f_code.co_filename.startswith(HERE) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        what()
    finally:
        sys.settrace(before)
    return count


def grows_with(make: Callable[[int], Callable[[], object]], size: int) -> list[float]:
    """By what factor the steps of what `make(size)` gives grow for two and for four times the
    size."""
    first = steps(make(size))
    assert first > 0
    return [steps(make(size * times)) / first for times in (2, 4)]


def is_linear(factors: list[float]) -> bool:
    """Whether steps grew no more than the size did, but for a tenth."""
    return all(factor <= times * 1.1 for factor, times in zip(factors, (2, 4), strict=True))


class Counted(int):
    """A number that counts how often numbers of its kind are compared."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) > int(other)
