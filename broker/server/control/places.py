"""Places in which the requests of one control connection are carried out, a share for each user.

The connection of the web process carries the requests of all users. One user's slow requests must
keep neither the others' waiting nor the connection unread: a request that finds no place waits in
its own task, for a while and in a bounded line, and is then refused.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import Counter, OrderedDict, deque
from typing import Any, NamedTuple

from broker.schema.control_schema import LEFT_EARLY, Received, RequestLeave
from broker.server.control.requests import Request, RequestError, handles
from broker.settings.bounds import (
    CONTROL_APPLIANCE_WAITING_MAX,
    CONTROL_AT_ONCE_MAX,
    CONTROL_SHARE,
    CONTROL_WAIT_S,
    CONTROL_WAITING_BYTES_MAX,
    CONTROL_WAITING_MAX,
)


class Limits(NamedTuple):
    """`at_once`: requests that are carried out at a time. `waiting` others wait, of `size` bytes
    together, for `wait_s` seconds at most. One user has one of `shares` parts of each."""

    at_once: int
    waiting: int
    size: float = math.inf
    wait_s: float | None = None
    shares: int = 1


USERS = Limits(
    CONTROL_AT_ONCE_MAX,
    CONTROL_WAITING_MAX,
    CONTROL_WAITING_BYTES_MAX,
    CONTROL_WAIT_S,
    CONTROL_SHARE,
)

APPLIANCE = Limits(CONTROL_AT_ONCE_MAX, CONTROL_APPLIANCE_WAITING_MAX)
"""Of requests that are made on behalf of no user. The appliance's own processes may rely on it that
each is carried out sometime."""

UNPLACED = frozenset(
    {
        "authenticate",
        "authenticate.leave",
        "list.end",
        "request.leave",
        "unsubscribe",
        "whoami",
    }
)
"""Verbs that take no place when the appliance itself asks. Passwords wait in a line of their own,
which has bounds (`logins_waiting_max`), and signed-in users do not wait behind them. The others are
answered at once: they free what others wait for, or ask whether the broker answers at all."""


class _Waiting(NamedTuple):
    place: asyncio.Future[None]
    size: int


class _Line:
    """Requests that wait, of one user or of all, and how many bytes they have."""

    __slots__ = ("count", "size")

    def __init__(self) -> None:
        self.count = self.size = 0

    def add(self, size: int) -> None:
        self.count += 1
        self.size += size

    def remove(self, size: int) -> None:
        self.count -= 1
        self.size -= size

    def is_full(self, count: int, size: float) -> bool:
        """The first may be of any size: what is longer than the limit must be able to wait, too."""
        return self.count >= count or self.size >= size


class _UserLine(_Line):
    """The requests of one user that wait."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[_Waiting] = deque()


class Places:
    """Those of one kind of callers, by the user's name. To be given back after use."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._taken: Counter[str] = Counter()
        self._all = _Line()
        self._lines: OrderedDict[str, _UserLine] = OrderedDict()
        """Who waits, by the user; the user that comes next is first."""

    async def take(self, user: str, size: int, *, is_part: bool = False) -> None:
        """Waits for a place for a request of `size` bytes. Raises RequestError `busy` where too
        much waits already, or when none has become free in time; one that `is_part` of an answer
        that has begun waits as long as it takes."""
        if self._has_room(user) and user not in self._lines:
            self._taken[user] += 1
            return
        self._check_lines(user)
        waiting = _Waiting(asyncio.get_running_loop().create_future(), size)
        line = self._lines.setdefault(user, _UserLine())
        line.waiting.append(waiting)
        line.add(size)
        self._all.add(size)
        try:
            await asyncio.wait((waiting.place,), timeout=None if is_part else self._limits.wait_s)
        except asyncio.CancelledError:
            if waiting.place.done():
                self.give_back(user)
            else:
                self._leave(user, waiting)
            raise
        if not waiting.place.done():
            self._leave(user, waiting)
            raise _busy(f"no place became free within {self._limits.wait_s:g} seconds")

    def give_back(self, user: str) -> None:
        """The request is over: the next one of those that wait has the place."""
        self._taken[user] -= 1
        if not self._taken[user]:
            del self._taken[user]
        while (name := self._next()) is not None:
            waiting = self._lines[name].waiting[0]
            # The users have their turns one after the other.
            self._lines.move_to_end(name)
            self._leave(name, waiting)
            self._taken[name] += 1
            waiting.place.set_result(None)

    def _has_room(self, user: str) -> bool:
        limits = self._limits
        share = limits.at_once // limits.shares
        return self._taken[user] < share and self._taken.total() < limits.at_once

    def _next(self) -> str | None:
        return next((name for name in self._lines if self._has_room(name)), None)

    def _check_lines(self, user: str) -> None:
        """Raises RequestError if no further request may wait."""
        limits, own = self._limits, self._lines.get(user) or _UserLine()
        if own.is_full(limits.waiting // limits.shares, limits.size // limits.shares):
            raise _busy(
                f"{self._taken[user]} requests of this user are carried out and {own.count} wait"
            )
        if self._all.is_full(limits.waiting, limits.size):
            raise _busy(f"{self._all.count} requests wait")

    def _leave(self, user: str, waiting: _Waiting) -> None:
        line = self._lines[user]
        line.waiting.remove(waiting)
        line.remove(waiting.size)
        self._all.remove(waiting.size)
        if not line.count:
            del self._lines[user]


class PlacesOfAll:
    """The places of one control connection, and the requests there that may be left early."""

    def __init__(self) -> None:
        self._of_users, self._of_appliance = Places(USERS), Places(APPLIANCE)
        self._left_early: dict[int, asyncio.Task[None]] = {}

    def of(self, frame: Received) -> Places | None:
        """Where the request needs a place, if it needs one."""
        if frame.as_user is not None:
            return self._of_users
        return None if frame.verb in UNPLACED else self._of_appliance

    def begun(self, frame: Received, task: asyncio.Task[None]) -> None:
        """The task answers the request, and waits for a place first."""
        if frame.verb in LEFT_EARLY:
            self._left_early[frame.id] = task
            task.add_done_callback(functools.partial(self._over, frame.id))

    def leave(self, id: int) -> None:
        """Ends a request that may be left early."""
        task = self._left_early.pop(id, None)
        if task is not None:
            task.cancel()

    def _over(self, id: int, _: asyncio.Task[None]) -> None:
        self._left_early.pop(id, None)


@handles("request.leave")
async def leave(request: Request[RequestLeave]) -> Any:
    """Answers verb `request.leave`."""
    request.session.places.leave(request.args.request)
    return {}


def _busy(why: str) -> RequestError:
    return RequestError("busy", f"the broker is busy: {why}; try again")
