"""In which order requests begin: one in each turn of the loop, and addresses take turns.

A client that asks without a pause, on many connections or many times on one, then waits for itself;
who asks once waits for one request of each other address at most. What begins at once when
nothing waits costs a comparison.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from weakref import WeakKeyDictionary

from broker.addresses import address_of
from management.paths import Application, Receive, Scope, Send


class Turns:
    """Belongs to one loop."""

    def __init__(self) -> None:
        self._begun = False  # one, in this turn
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def take(self, address: str) -> None:
        """Returns when a request of this address may begin."""
        loop = asyncio.get_running_loop()
        if not self._begun:
            self._begun = True
            loop.call_soon(self._next)
            return
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(address, deque()).append(future)
        await future

    def _next(self) -> None:
        """The next turn: the address that waited longest since its last request."""
        while self._waiting:
            address, futures = self._waiting.popitem(last=False)
            future = futures.popleft()
            if futures:
                self._waiting[address] = futures
            if not future.done():  # its connection may have ended
                future.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._begun = False


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()
"""Of each loop, for all its ports."""


class InTurn:
    """Requests over HTTP, in turn; WebSockets have turns of their own
    (`broker.websocket_intake`)."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            client = scope.get("client")
            turns = _turns.setdefault(asyncio.get_running_loop(), Turns())
            await turns.take(address_of(client[0]) if client else "unix")
        await self._application(scope, receive, send)
