"""Carries out searches in streams: the index is first brought up to what the stream has synced,
then a thread looks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from broker.store.keys.searching import Answer, Wanted

CATCH_UP_S = 2.0
"""How long a search waits for the index to have what was published before."""

WAIT_S = 0.005


class Searching:
    """One search through a stream, by the index of its vhost."""

    def __init__(self, broker: Any, index: Any, queue: Any) -> None:
        self._broker = broker
        self._index = index
        self._queue = queue

    async def find(self, name: str, value: bytes, first: int, last: int, most: int) -> Answer:
        """The newest messages with a key between two times (ms since 1970, included)."""
        config = self._broker.config
        with self._broker.stream_indexes.searching(config.stream_searches_max):
            # What was published before the search is found by it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_S):
                    await self._broker.synced(records=True)
            behind = await self._catch_up()
            call = self._index.search(
                self._queue,
                name,
                value,
                Wanted(first, last, most, reads=config.stream_search_reads_max),
                config.stream_search_timeout,
            )
            answer: Answer = await asyncio.to_thread(call)
        if behind:
            answer.lacks(
                f"the index is {behind} bytes behind the stream"
                + (f": {self._index.problem}" if self._index.problem else "")
            )
        if not self._index.is_whole:
            answer.lacks("damaged parts of the index are being made again")
        return answer

    async def _catch_up(self) -> int:
        """Lets the index go on while it is behind; by how many bytes it still is in the end."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CATCH_UP_S
        place = self._queue.incarnation, self._queue.store.synced_end
        while (
            (behind := self._index.behind(*place)) or self._index.is_changed
        ) and loop.time() < until:
            step = self._index.next_step()
            if step is not None:
                await asyncio.to_thread(step)
            if step is None or self._index.problem:
                await asyncio.sleep(WAIT_S)
        return int(behind)
