"""The broker's event loop: asyncio's, which waits in `Sockets` for what happens next.

asyncio looks at its sockets through a selector, once a turn. This one serves the plain connections
and the store's threads itself, turn after turn, and comes back when asyncio has something to do.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVarTuple

from broker.server.sockets import Sockets

_Ts = TypeVarTuple("_Ts")


class Selector(selectors.EpollSelector):
    """Says what is ready besides that which `sockets` has served."""

    def __init__(self, sockets: Sockets) -> None:
        super().__init__()
        self.sockets = sockets
        sockets.open(self.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        registered = self.get_map()
        ready = []
        for fd, seen in self.sockets.wait(timeout):
            key = registered.get(fd)
            if key is not None:  # else what was served before has closed it
                # Ends and errors are for who reads and for who writes.
                events = selectors.EVENT_WRITE if seen & ~select.EPOLLIN else 0
                events |= selectors.EVENT_READ if seen & ~select.EPOLLOUT else 0
                ready.append((key, events & key.events))
        return ready


class Loop(asyncio.SelectorEventLoop):
    """Has its turn when callbacks or timers are added while `sockets` serves."""

    # As asyncio's, without a Python frame: each timer that is set asks for it.
    time = staticmethod(time.monotonic)

    def __init__(self, sockets: Sockets) -> None:
        self.sockets = sockets
        super().__init__(Selector(sockets))

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self.sockets.due = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self.sockets.due = True
        return super().call_at(when, callback, *args, context=context)


def run(sockets: Sockets, main: Coroutine[Any, Any, int]) -> int:
    """Runs `main` in a loop that serves `sockets`, and returns what it does."""
    with asyncio.Runner(loop_factory=lambda: Loop(sockets)) as runner:
        return runner.run(main)
