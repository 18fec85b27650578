"""What is remembered of one object with traffic: its newest counters, rates, a short history."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from broker.stats.series import OBJECT_TIERS, Series

RATE_WINDOW_MS = 5_000

QUEUE_COUNTERS = (
    "publish",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "redeliver",
    "reject",
    "confirm",
)
QUEUE_LEVELS = ("messages_ready", "messages_unacknowledged", "message_bytes")
EXCHANGE_COUNTERS = ("publish_in", "publish_out")
CHANNEL_COUNTERS = (
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "redeliver",
    "reject",
)
CONNECTION_COUNTERS = ("recv_oct", "send_oct", "recv_cnt", "send_cnt")

KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "queue": (QUEUE_COUNTERS, QUEUE_LEVELS),
    "exchange": (EXCHANGE_COUNTERS, ()),
    "channel": (CHANNEL_COUNTERS, ()),
    "connection": (CONNECTION_COUNTERS, ()),
}
"""Counters and levels of each kind of object, in the order of a row."""

DELIVERING = ("deliver", "deliver_no_ack", "get", "get_no_ack")


class Gauge:
    """Counters and levels of one object over the last seconds. A row is in the order of `KINDS`."""

    __slots__ = (
        "_places",
        "_rows",
        "acked_at",
        "changed_at",
        "consumers",
        "growth",
        "history",
        "names",
        "oldest_unconfirmed",
        "unconfirmed_since",
    )

    def __init__(self, kind: str, at: int = 0) -> None:
        """`at`: now, in ms since 1970."""
        counters, levels = KINDS[kind]
        self.names = (*counters, *levels)
        self._places = {name: place for place, name in enumerate(self.names)}
        self._rows: deque[tuple[int, array[float]]] = deque()
        self.history: Series | None = None
        self.acked_at = at
        """When something was acknowledged last, or nothing was waiting for it, or a consumer came;
        ms since 1970."""
        self.consumers = 0
        """How many there were at the last look."""
        self.changed_at = 0
        """When a counter or a level changed last; ms since 1970."""
        self.oldest_unconfirmed = 0
        """A channel's oldest unconfirmed tag; 0 without one."""
        self.unconfirmed_since = 0
        """When that tag was first seen as the oldest, ms since 1970."""
        self.growth = 0.0
        """Change of the messages a second, smoothed over about half a minute."""

    def add(self, at: int, row: Sequence[float]) -> None:
        """Takes the newest row; forgets those that no rate needs any more."""
        rows = self._rows
        newest = array("d", row)
        if not rows or rows[-1][1] != newest:
            self.changed_at = at
        rows.append((at, newest))
        while len(rows) > 2 and rows[1][0] <= at - RATE_WINDOW_MS:
            rows.popleft()
        if self.history is not None:
            self.history.add(at, row)

    def judge(self, at: int, unacked: int, consumers: int) -> None:
        """Whether its consumers go on: nothing waits for their acknowledgement, or some came. One
        more consumer than before has its own time to begin."""
        if not unacked or consumers > self.consumers or self.rate_of(("ack", "reject")) > 0:
            self.acked_at = at
        self.consumers = consumers

    @property
    def newest(self) -> Sequence[float]:
        return self._rows[-1][1] if self._rows else ()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing changed within the window of the rates."""
        return not self._rows or self._rows[0][1] == self._rows[-1][1]

    def is_older_than(self, at: int) -> bool:
        """Whether the last look at the object was before that time."""
        return not self._rows or self._rows[-1][0] < at

    def rate(self, name: str) -> float:
        """Change per second over the last five seconds."""
        if len(self._rows) < 2:
            return 0.0
        (old_at, old), (new_at, new) = self._rows[0], self._rows[-1]
        place = self._places[name]
        return round((new[place] - old[place]) * 1000 / max(1, new_at - old_at), 3)

    def rate_of(self, names: Iterable[str]) -> float:
        return round(sum(self.rate(name) for name in names), 3)

    def keep_history(self, kind: str) -> Series:
        """The history, begun now if there was none."""
        if self.history is None:
            counters, levels = KINDS[kind]
            self.history = Series(counters, levels, OBJECT_TIERS)
        return self.history


def row_of(kind: str, thing: Any, counters: Mapping[str, float] | None = None) -> list[float]:
    """The present row of an object: its counters, then its levels."""
    names = KINDS[kind][0]
    if counters is not None:
        row: list[float] = [counters.get(name, 0) for name in names]
    else:
        row = [getattr(thing, name) for name in names]
    if kind == "queue":
        size = thing.message_bytes_ready + thing.message_bytes_unacknowledged
        row += (thing.messages_ready, thing.messages_unacknowledged, size)
    return row
