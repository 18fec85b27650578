"""Memory for WebSocket messages that are not whole or not taken yet, bounded for all of the web
process together. The broker's own listener hands content on as it comes and holds none.

A connection is counted from `COUNTED_FROM` bytes on, as its user's, or as its address's where no
user is known. A quarter of all is for one of these: beyond it the message begun first is read on
and the others wait unread; one that keeps others waiting for `ws_unfinished_timeout` is closed.
Where all together have too much, the message begun first of the one that holds most is closed at
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.settings.config import Config

COUNTED_FROM = 16 * 1024
"""What a connection may hold without its being counted."""
LOOKS_EVERY_S = 1.0
REASON = "messages that are not finished take too much memory (ws_unfinished_max)"


def message_max(config: Config) -> int:
    """Bytes of the longest message that is taken."""
    return max(config.ws_message_max, config.frame_max + 8)


class Hold:
    """What one WebSocket holds. `give_way` closes it, `go_on` takes up what waited."""

    __slots__ = (
        "_give_way",
        "_go_on",
        "_room",
        "begun",
        "holder",
        "is_held_back",
        "size",
        "waits",
    )

    def __init__(self, room: Room, give_way: Callable[[], None], go_on: Callable[[], None]) -> None:
        self._room = room
        self._give_way = give_way
        self._go_on = go_on
        self.holder: _Holder | None = None
        self.size = 0
        self.begun = 0.0
        self.is_held_back = False
        self.waits = False
        """Whether nothing more may be taken for now."""

    def set(self, size: int, who: str, *, is_held_back: bool) -> None:
        """The connection of this user or address holds `size` bytes now. `is_held_back`: what
        takes its messages does not, at present; that time is not counted as the client's."""
        if size <= COUNTED_FROM:
            size = 0
        if self.is_held_back and not is_held_back:
            self.begun = time.monotonic()
        self.is_held_back = is_held_back
        if size != self.size:
            self._room.change(self, size, who)

    def clear(self) -> None:
        """The connection is over."""
        if self.size:
            self._room.change(self, 0, "")

    def end(self) -> None:
        """Closes the connection, which pays for all."""
        self.clear()
        self._give_way()

    def wake(self) -> None:
        self.waits = False
        self._go_on()


class _Holder:
    """A user, or an address: its connections that are counted, in the order they began."""

    __slots__ = ("holds", "is_woken", "name", "size", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.is_woken = False
        self.holds: dict[Hold, None] = {}
        self.waiting: dict[Hold, None] = {}

    @property
    def first(self) -> Hold:
        return next(iter(self.holds))


class Room:
    """All of a process. `config` tells the settings in force, `later` calls a function after
    seconds."""

    def __init__(
        self,
        config: Callable[[], Config],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._config = config
        self._later = later
        self._holders: dict[str, _Holder] = {}
        self._looks = False
        self.size = 0
        self.closed = 0
        """Connections that were closed since the start."""

    def _most(self) -> int:
        """Bytes of the bound: one message has to fit into a quarter of it."""
        config = self._config()
        return max(config.ws_unfinished_max, 4 * message_max(config))

    def hold(self, give_way: Callable[[], None], go_on: Callable[[], None]) -> Hold:
        """A place for one WebSocket, which holds nothing yet."""
        return Hold(self, give_way, go_on)

    def change(self, hold: Hold, size: int, who: str) -> None:
        """For `Hold` alone."""
        holder = hold.holder
        if holder is None:
            holder = hold.holder = self._holders.setdefault(who, _Holder(who))
            holder.holds[hold] = None
            hold.begun = time.monotonic()
        grown = size - hold.size
        hold.size = size
        holder.size += grown
        self.size += grown
        if not size:
            self._leave(hold, holder)
        if grown < 0:
            if holder.waiting and not holder.is_woken:
                holder.is_woken = True
                self._later(0, partial(self._wake, holder))
            return
        if holder.size > self._most() // 4 and holder.first is not hold:
            hold.waits = True
            holder.waiting[hold] = None
            self._look_later()
        while self.size > self._most():
            self._end(max(self._holders.values(), key=lambda one: one.size).first)

    def _leave(self, hold: Hold, holder: _Holder) -> None:
        hold.holder = None
        hold.waits = False
        del holder.holds[hold]
        holder.waiting.pop(hold, None)
        if not holder.holds:
            del self._holders[holder.name]

    def _wake(self, holder: _Holder) -> None:
        """Those that wait continue as far as there is room; the one begun first in any case."""
        holder.is_woken = False
        room = self._most() // 4 - holder.size
        while holder.waiting:
            first = holder.first
            hold = first if first in holder.waiting else next(iter(holder.waiting))
            if hold is not first and room <= 0:
                return
            room -= COUNTED_FROM
            del holder.waiting[hold]
            hold.wake()

    def _look_later(self) -> None:
        if not self._looks:
            self._looks = True
            self._later(LOOKS_EVERY_S, self._look)

    def _look(self) -> None:
        """Closes those that keep others waiting for too long."""
        self._looks = False
        until = time.monotonic() - self._config().ws_unfinished_timeout
        for holder in [one for one in self._holders.values() if one.waiting]:
            first = holder.first
            if first.begun <= until and not first.is_held_back:
                self._end(first)
        if any(one.waiting for one in self._holders.values()):
            self._look_later()

    def _end(self, hold: Hold) -> None:
        self.closed += 1
        hold.end()
