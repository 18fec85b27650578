"""How fast many connections are opened: some at once at each place, so that thousands of links that
begin together neither flood a broker nor hold up those to others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

ENDED_AT_ONCE = 100

Step = Callable[[], Awaitable[None]]


class Pace:
    """Turns at places, `at_once` at each."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._places: dict[str, tuple[asyncio.Semaphore, set[object]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, place: str) -> AsyncIterator[None]:
        """Waits until fewer than the most are at work there."""
        known = self._places.setdefault(place, (asyncio.Semaphore(self._at_once), set()))
        semaphore, users = known
        user = object()
        users.add(user)
        try:
            async with semaphore:
                yield
        finally:
            users.discard(user)
            if not users:
                self._places.pop(place, None)


class Endings:
    """What ends while other things go on: a connection to a peer that does not answer takes its
    time to close."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(ENDED_AT_ONCE)

    def begin(self, key: Hashable, *steps: Step) -> None:
        """Lets these happen one after the other, behind what the key has to end already."""
        task = asyncio.create_task(self._run(self._tasks.get(key), steps))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    def _forget(self, key: Hashable, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]

    async def _run(self, before: asyncio.Task[None] | None, steps: tuple[Step, ...]) -> None:
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        async with self._places:
            for step in steps:
                await step()

    async def over(self, key: Hashable) -> None:
        """Waits until what the key had to end has ended."""
        task = self._tasks.get(key)
        if task is not None:
            await asyncio.gather(asyncio.shield(task), return_exceptions=True)

    async def stop(self) -> None:
        """Ends it where it is."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
