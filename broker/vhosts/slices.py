"""Long work in slices, one in each turn of the loop, so that other clients do not wait for all."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from broker.kernel.steps import Pause

log = logging.getLogger("leveret.slices")

SLICE_S = 0.00025


class _Work(NamedTuple):
    number: int
    steps: Iterator[object]


class _End(NamedTuple):
    """A caller waits for the works with numbers above `since`, up to `until`."""

    since: int
    until: int
    callback: Callable[[], None]


class Slices:
    """The long work of one vhost. `later(seconds, callback)` sets a timer of the loop."""

    def __init__(self, later: Callable[[float, Callable[[], None]], Any]) -> None:
        self.begun = 0
        """How many works could not be done at once."""
        self._later = later
        self._in_turns = False
        self._works: deque[_Work] = deque()
        self._paused: dict[int, int] = {}
        """How many parts of a work, by its number, wait for something else than their turn."""
        self._ends: list[_End] = []
        self._going_on: int | None = None

    def start(self) -> None:
        """The loop runs: what is begun from now on takes turns. Before, it was done at once."""
        self._in_turns = True

    def begin(self, steps: Iterator[object]) -> None:
        """Does a slice of work, and the rest in the turns to come; what a work begins is part of
        it. Raises what the first slice raises; what is raised later is logged and ends the work."""
        pause = self._slice(steps)
        if pause is None:
            return
        if self._going_on is None:
            self.begun += 1
        number = self.begun if self._going_on is None else self._going_on
        self._line_up(_Work(number, steps), pause)

    def is_over(self, since: int = 0) -> bool:
        """Whether all that was begun after `since`, an earlier value of `begun`, is done."""
        return all(number <= since for number in self._numbers())

    def _numbers(self) -> set[int]:
        """Of the works that are not done."""
        return {*self._paused, *(work.number for work in self._works)}

    def over(self, callback: Callable[[], None], since: int = 0) -> None:
        """Calls `callback()` when all that was begun after `since` up to now is done, at once if it
        is."""
        if not (self._works or self._paused) or self.is_over(since):
            callback()
        else:
            self._ends.append(_End(since, self.begun, callback))

    def _slice(self, steps: Iterator[object]) -> float | None:
        """Seconds until the work continues; None: it is done."""
        until = time.perf_counter() + SLICE_S if self._in_turns else math.inf
        for each in steps:
            if type(each) is Pause and self._in_turns:
                return each
            if time.perf_counter() >= until:
                return 0.0
        return None

    def _line_up(self, work: _Work, pause: float) -> None:
        """Its next slice comes in a turn behind those that wait, once the pause is over."""
        if pause:
            self._paused[work.number] = self._paused.get(work.number, 0) + 1
            self._later(pause, partial(self._resume, work))
            return
        self._works.append(work)
        if len(self._works) == 1 and self._going_on is None:
            self._later(0, self._go_on)

    def _resume(self, work: _Work) -> None:
        self._paused[work.number] -= 1
        if not self._paused[work.number]:
            del self._paused[work.number]
        self._line_up(work, 0.0)

    def _go_on(self) -> None:
        """A slice of the work whose turn it is."""
        work = self._works.popleft()
        self._going_on = work.number
        pause = None
        try:
            pause = self._slice(work.steps)
        except Exception:
            log.exception("long work ended in the middle")
        finally:
            self._going_on = None
        if self._works:
            self._later(0, self._go_on)
        if pause is None:
            self._tell()
        else:
            self._line_up(work, pause)

    def _tell(self) -> None:
        numbers = self._numbers()
        ends, self._ends = self._ends, []
        for end in ends:
            if any(end.since < number <= end.until for number in numbers):
                self._ends.append(end)
            else:
                end.callback()
