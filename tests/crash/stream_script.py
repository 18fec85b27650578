"""The part of a workload that concerns its stream: publishing, keeping places, purging."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from broker.fields import properties
from broker.queues.stream_arguments import Start
from tests.crash.inside import Inside, publish
from tests.crash.stream_promises import Entry, Kept, StreamPromises
from tests.inner import keep_place

NAME = "stream"
KEEPS = 20
ARGUMENTS: dict[str, Any] = {"x-queue-type": "stream", "x-max-length": KEEPS}
TAGS = ("one", "two")
PERSISTENT = properties.encode({"delivery_mode": 2})


def rows_of(inside: Inside, name: str = NAME) -> list[tuple[int, bytes]]:
    """(offset, body) of all that a reader gets from the beginning."""
    told: list[list[Any]] = []
    queue = inside.vhost.queues[name]
    queue.browse(Start("first"), 1 << 30, 1 << 40, told.append)
    inside.pump(lambda: inside.ring() is None and bool(told))
    return [(row[0], row[5]) for row in told[0]]


class StreamScript:
    """Drives the stream of a broker; `now` gives the moment, `after_round` calls back when
    a round is over."""

    def __init__(
        self,
        chance: random.Random,
        now: Callable[[], int],
        after_round: Callable[[Callable[[], None]], object],
    ) -> None:
        self.promises = StreamPromises()
        self._chance = chance
        self._now = now
        self._after_round = after_round
        self._purged: list[Entry] = []

    def publish(self, inside: Inside, body: bytes) -> None:
        """One message, confirmed with its round. Retention may take the oldest segments as soon as
        there are too many messages."""
        store = inside.vhost.queues[NAME].store
        entry = Entry(store.next_offset, body, self._now())
        self.promises.entries.append(entry)
        self._forget(store, 1)
        publish(inside.vhost, "", NAME, PERSISTENT, body)
        assert store.next_offset == entry.offset + 1

        def told() -> None:
            entry.confirmed = self._now()

        self._after_round(told)

    def _forget(self, store: Any, more: int) -> None:
        """Notes what retention may take once `more` messages are there: whole segments, the oldest
        first."""
        left = store.total + more
        for summary in store.summaries:
            if left <= KEEPS:
                break
            left -= summary.count
            for entry in self.promises.entries:
                if entry.offset < summary.first_offset + summary.count:
                    entry.forgotten = min(entry.forgotten, self._now())

    def keep_place(self, inside: Inside) -> None:
        """A consumer is done with something that is on disk."""
        tag = self._chance.choice(TAGS)
        rows = self.promises.places.setdefault(tag, [])
        before = rows[-1].offset if rows else -1
        safe = [
            entry.offset
            for entry in self.promises.entries
            if entry.confirmed <= self._now() and entry.offset > before
        ]
        if safe:
            rows.append(Kept(self._chance.choice(safe[:5]), self._now()))
            keep_place(inside.vhost.queues[NAME].store, tag, rows[-1].offset)

    def purge(self, inside: Inside) -> None:
        """All goes; it stays gone from the next tick on."""
        for entry in self.promises.entries:
            if entry.forgotten > self._now():
                entry.forgotten = self._now()
            self._purged.append(entry)
        inside.vhost.queues[NAME].purge()

    def ticking(self) -> Callable[[], None]:
        """Before a tick; what it gives is to be called after it."""
        purged, self._purged = self._purged, []
        kept = [row for rows in self.promises.places.values() for row in rows]

        def ticked() -> None:
            for entry in purged:
                entry.gone = min(entry.gone, self._now())
            for row in kept:
                row.synced = min(row.synced, self._now())

        return ticked
