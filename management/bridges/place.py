"""How far a shovel has come in a stream, which forgets nothing that was read.

The broker keeps the place with the definition: the next offset, below which all is settled, and
ahead of the messages that are published the highest offset that may have been. After a crash the
shovel begins at the first, and marks what it publishes up to the second: it may be there already.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from broker.client.batch import Batch
from broker.client.properties import Malformed
from management.bridges.plan import ShovelFailed

AHEAD_LEAST = 1000
"""Offsets that are noted ahead at least; more where as many come within KEEP_EVERY_S."""
KEEP_EVERY_S = 0.2
LAST_TIMEOUT_S = 2.0

Keep = Callable[[dict[str, Any]], Awaitable[None]]
"""Has the broker keep {of, offset, noted}. Raises ShovelFailed."""


class Place:
    """What the broker keeps of one shovel. `of` says which stream of which definition it is."""

    def __init__(self, kept: dict[str, Any] | None, keep: Keep) -> None:
        self._kept = kept
        self._keep = keep

    def of(self, stream: str) -> tuple[int | None, int]:
        """The next offset, None where there is none yet, and the highest that was noted."""
        if self._kept is None or self._kept["of"] != stream:
            return None, -1
        return self._kept["offset"], self._kept["noted"]

    async def keep(self, stream: str, offset: int, noted: int) -> None:
        """Returns when it is on disk. Raises ShovelFailed."""
        kept = {"of": stream, "offset": offset, "noted": noted}
        if kept != self._kept:
            await self._keep(kept)
            self._kept = kept


class Track:
    """The place during one attempt."""

    def __init__(self, place: Place, stream: str) -> None:
        self._place = place
        self._stream = stream
        self.start, self._resumed = place.of(stream)
        """The offset to begin with; None for what the definition says."""
        self._noted = -1
        self._highest = -1
        self._next = self.start
        self._taken: deque[tuple[int, int]] = deque()
        """Last delivery tag and last offset of each batch that is not settled."""
        self._due = asyncio.Event()
        """Something is to be kept."""
        self._short = asyncio.Event()
        """Messages wait for the note."""
        self._noted_enough = asyncio.Event()

    @property
    def may_publish(self) -> bool:
        """Whether all that was taken is noted."""
        return self._highest <= self._noted

    async def ready(self) -> None:
        """Waits until all that was taken is noted."""
        while not self.may_publish:
            self._noted_enough.clear()
            await self._noted_enough.wait()

    def took(self, batch: Batch) -> bool:
        """A batch was delivered; whether its messages may be at the destination already. Raises
        ShovelFailed if the source is no stream."""
        last = _offset(batch, len(batch) - 1)
        self._taken.append((batch.last_tag, last))
        self._highest = last
        if self._next is None:
            self._next = _offset(batch, 0)
        if not self.may_publish:
            self._due.set()
            self._short.set()
        return self._resumed >= 0 and _offset(batch, 0) <= self._resumed

    def settled(self, tag: int | None) -> None:
        """All deliveries up to this tag are settled; None for all that were taken."""
        while self._taken and (tag is None or self._taken[0][0] <= tag):
            self._next = self._taken.popleft()[1] + 1
            self._due.set()

    async def keep(self) -> None:
        """Has the place kept as it changes. Raises ShovelFailed."""
        before = None
        while True:
            await self._due.wait()
            self._due.clear()
            self._short.clear()
            came = 0 if before is None else self._highest - before
            before = self._highest
            await self._put(self._highest + max(AHEAD_LEAST, 2 * came))
            self._noted_enough.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(KEEP_EVERY_S):
                    await self._short.wait()

    async def _put(self, noted: int) -> None:
        if self._next is not None:
            await self._place.keep(self._stream, self._next, max(noted, self._resumed))
            self._noted = noted

    async def close(self) -> None:
        """The attempt is over: nothing beyond what was taken is marked by the next one."""
        with contextlib.suppress(ShovelFailed, TimeoutError):
            async with asyncio.timeout(LAST_TIMEOUT_S):
                await self._put(min(self._highest, self._noted))


def _offset(batch: Batch, index: int) -> int:
    """The offset of a message of a stream. Raises ShovelFailed."""
    try:
        found = batch.message(index).decoded().get("headers", {}).get("x-stream-offset")
    except Malformed:
        found = None
    if not isinstance(found, int):
        raise ShovelFailed("the source sends no x-stream-offset: it is no stream", stops=True)
    return found
