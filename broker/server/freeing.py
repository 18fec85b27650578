"""Frees long lists in steps.

What a list alone still holds goes with it: of 100,000 queues that were deleted while a list of them
was kept, that is 100 ms of one turn of the loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from broker.server.pace import Pace

_STEP = 100
_OWN = 2
"""References that `sys.getrefcount` counts where nothing else has the list: a variable, its own."""
_LOOK_AGAIN_S, _LOOKS_MAX = 0.1, 100
"""A list that is in use still after ten seconds is left to its other users."""


class Freeing:
    """Lists that are kept no more. `run_task` runs a coroutine by itself."""

    def __init__(self, run_task: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._run_task = run_task
        self._lists: deque[list[Any]] = deque()
        self._looks: dict[int, int] = {}
        """By the `id` of each of them: how often it was found in use."""

    def add(self, things: list[Any]) -> None:
        """Empties the list once no request has it in hand any more; it must not be used later."""
        if len(things) <= _STEP or id(things) in self._looks:
            return
        self._lists.append(things)
        self._looks[id(things)] = 0
        if len(self._looks) == 1:
            self._run_task(self._free())

    async def _free(self) -> None:
        pace = Pace()
        while self._lists:
            things = self._lists.popleft()
            if sys.getrefcount(things) > _OWN and self._looks[id(things)] < _LOOKS_MAX:
                self._looks[id(things)] += 1
                self._lists.append(things)
                del things
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            while things and sys.getrefcount(things) == _OWN:
                del things[-_STEP:]
                await pace()
            del self._looks[id(things)]
            del things
