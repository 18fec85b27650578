"""In which order the work of requests is done: addresses have equal parts of the time.

A step is what the loop does for a request between two waits, a piece of a connection that is
parsed, or what is read from a socket or written to it. Steps take `web_turn` of a turn of the loop,
whosever they are, so that none is long. The next one is of the address that has had least time
since it came, as its processor time was measured: a client that asks without a pause, on many
connections or many times on one, waits for itself, and a handshake, which takes as long as ten
other steps, counts as ten. Who comes begins where the others are, and owes what it took before, for
as long as anything waits. What is new, a request, a piece to be parsed or a socket that is ready,
begins when no step of its address waits: so few are in memory at a time. TLS handshakes wait
longest: while anything else of their address waits, every fourth step is one of theirs, so that
hundreds that begin together delay a connection of the same address by little.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from django.conf import settings

from broker.serving.addresses import address_of
from management.paths import Application, Receive, Scope, Send

ADDRESS: ContextVar[str | None] = ContextVar("address", default=None)
"""For whom a task works. A task that works for all, and is made by a request, has a context of its
own."""


OWING_MIN = 256
BETWEEN_HANDSHAKES = 3
"""Other steps of an address, while there are any, behind one of a TLS handshake."""


class _Share:
    """What waits of one address, and the seconds that it has `used`, on the scheduler's scale."""

    __slots__ = ("_since", "handshakes", "new", "steps", "used")

    def __init__(self, used: float) -> None:
        self.used = used
        self.steps: deque[asyncio.Handle] = deque()
        self.new: deque[asyncio.Handle] = deque()
        self.handshakes: deque[asyncio.Handle] = deque()
        self._since = 0  # steps since that of the last handshake

    def __len__(self) -> int:
        return len(self.steps) + len(self.new) + len(self.handshakes)

    def take(self) -> asyncio.Handle:
        """What comes next, of what waits."""
        others = self.steps or self.new
        if self.handshakes and (not others or self._since >= BETWEEN_HANDSHAKES):
            self._since = 0
            return self.handshakes.popleft()
        self._since += 1
        return others.popleft()


class ClientScheduler:
    """Belongs to one loop. `share` is called for the CPU seconds that steps take of a turn of the
    loop; the one that goes beyond them is the last."""

    def __init__(
        self, share: Callable[[], float], clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._share_of_turn = share
        self._clock = clock
        self._is_called = False
        self._waiting: dict[str, _Share] = {}
        self._order: list[tuple[float, int, str]] = []
        """A heap of those that wait: what each has used, and since when it waits for its step."""
        self._numbers = itertools.count()
        self._least = 0.0
        """What the address has used that was served last: where one that comes begins."""
        self._owing: dict[str, float] = {}
        """What addresses have used of which nothing waits."""
        self._owing_most = OWING_MIN

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def step(self, address: str, handle: asyncio.Handle, loop: asyncio.AbstractEventLoop) -> None:
        """Runs it when it is its address's turn; the loop need not run yet."""
        self._share(address, loop).steps.append(handle)

    def begin(self, address: str, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Calls it in turn, when no step of this address waits."""
        loop = asyncio.get_running_loop()
        return _called(self._share(address, loop).new, callback, args, loop)

    def shake(self, address: str, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """The same for a part of a TLS handshake."""
        loop = asyncio.get_running_loop()
        return _called(self._share(address, loop).handshakes, callback, args, loop)

    async def take(self, address: str) -> None:
        """Returns when a request of this address may begin."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begin(address, _resolve, future)
        await future

    def _share(self, address: str, loop: asyncio.AbstractEventLoop) -> _Share:
        if not self._is_called:
            self._is_called = True
            loop.call_soon(self._serve)
        share = self._waiting.get(address)
        if share is None:
            share = _Share(max(self._least, self._owing.pop(address, 0.0)))
            self._waiting[address] = share
            heapq.heappush(self._order, (share.used, next(self._numbers), address))
        return share

    def _serve(self) -> None:
        """The address first that has used least; of equal ones, which has waited longest."""
        now = self._clock()
        until = now + self._share_of_turn()
        try:
            while self._order and now < until:
                self._least, _, address = heapq.heappop(self._order)
                share = self._waiting[address]
                handle = share.take()
                if not handle.cancelled():
                    handle._run()
                    before, now = now, self._clock()
                    share.used += now - before
                if share:
                    heapq.heappush(self._order, (share.used, next(self._numbers), address))
                else:
                    del self._waiting[address]
                    self._owe(address, share.used)
        finally:
            self._is_called = bool(self._waiting)
            if self._is_called:
                asyncio.get_running_loop().call_soon(self._serve)
            else:
                self._owing.clear()

    def _owe(self, address: str, used: float) -> None:
        self._owing[address] = used
        if len(self._owing) > self._owing_most:
            self._owing = {each: used for each, used in self._owing.items() if used > self._least}
            self._owing_most = max(OWING_MIN, 2 * len(self._owing))


def _called(
    waiting: deque[asyncio.Handle],
    callback: Callable[..., object],
    args: tuple[Any, ...],
    loop: asyncio.AbstractEventLoop,
) -> asyncio.Handle:
    """A call in a context of its own, behind those that wait."""
    handle = asyncio.Handle(callback, args, loop, Context())
    waiting.append(handle)
    return handle


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():  # its connection may have ended
        future.set_result(None)


_schedulers: WeakKeyDictionary[asyncio.AbstractEventLoop, ClientScheduler] = WeakKeyDictionary()


def scheduler_of(loop: asyncio.AbstractEventLoop) -> ClientScheduler:
    """Those of a loop, for all its ports."""
    found = _schedulers.get(loop)
    if found is None:
        found = _schedulers[loop] = ClientScheduler(_web_turn)
    return found


def _web_turn() -> float:
    seconds: float = settings.APPLIANCE.web_turn
    return seconds


class InTurn:
    """Requests over HTTP, in turn; WebSockets have turns of their own
    (`broker.serving.websocket_intake`)."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            client = scope.get("client")
            address = address_of(client[0]) if client else "unix"
            ADDRESS.set(address)
            await scheduler_of(asyncio.get_running_loop()).take(address)
        await self._application(scope, receive, send)
