"""Slices of long work: the loop serves others between them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Generator, Iterable
from typing import TypeVar
from weakref import WeakKeyDictionary

from broker.kernel.steps import Pause

T = TypeVar("T")

_TURN_S = 0.0002
"""A message of another client waits for so long at most. Half of it would cost a tenth more in
turns of the loop."""


class Pace:
    """Gives the loop a chance to do something else when 0.2 ms have passed.

    All paces of a loop share its turns: those that begin in a turn have one slice together, and one
    of those that wait continues in each turn, in order of arrival. However many clients ask for
    long lists at the same time, others wait for one slice. To be made in a coroutine.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        queue = _queues.get(loop)
        if queue is None:
            queue = _queues[loop] = _Queue(loop)
        self._queue = queue
        self._until = queue.begin()

    async def __call__(self) -> None:
        if time.perf_counter() >= self._until:
            await self._queue.place()
            self._until = time.perf_counter() + _TURN_S


class _Queue:
    """Paces that wait for a turn of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._create_future = loop.create_future
        self._until: float | None = None
        self.waiting: deque[asyncio.Future[None]] = deque()

    def begin(self) -> float:
        """Until when work that begins now may take: the end of this turn's slice."""
        if self.waiting:
            return 0.0
        if self._until is None:
            self._until = time.perf_counter() + _TURN_S
            self._call_soon(self._end)
        return self._until

    def _end(self) -> None:
        self._until = None

    def place(self) -> asyncio.Future[None]:
        """Done in a later turn, alone in it."""
        future: asyncio.Future[None] = self._create_future()
        self.waiting.append(future)
        if len(self.waiting) == 1:
            self._call_soon(self._next)
        return future

    def _next(self) -> None:
        while self.waiting and self.waiting[0].done():
            self.waiting.popleft()  # its request was cancelled
        if not self.waiting:
            return
        self.waiting.popleft().set_result(None)
        if self.waiting:
            self._call_soon(self._next)


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue] = WeakKeyDictionary()


async def paced(steps: Generator[Pause | None, None, T] | Iterable[None]) -> T:
    """Runs a generator in slices, and waits where it yields a `Pause`; what it returns."""
    pace = Pace()
    iterator = iter(steps)
    while True:
        try:
            step: object = next(iterator)
        except StopIteration as end:
            found: T = end.value
            return found
        if isinstance(step, Pause):
            await asyncio.sleep(step)
        await pace()
