"""Carries out searches in streams: the index is first brought up to what the stream has synced,
then a thread looks."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from broker.schema.errors import describe
from broker.schema.message_history import PLACE_KEY
from broker.server.control.requests import bad_request
from broker.store.keys.searching import Answer, Wanted

CATCH_UP_S = 2.0
"""How long a search waits for the index to have what was published before."""

WAIT_S = 0.005

TIME_MOST = 2**62
"""Ms since 1970."""


class Asked(NamedTuple):
    """What a search asks for: the newest `most` messages with a value, None is no limit of time."""

    key: str | None
    value: bytes
    first: int | None
    last: int | None
    most: int


class Found(NamedTuple):
    """What a search found. `key` is the key of the index that it went by; `whole_from` the time
    (ms) from which on the stream is indexed by it, None: from its beginning."""

    answer: Answer
    key: str
    whole_from: int | None


async def search(broker: Any, vhost: Any, queue: Any, asked: Asked) -> Found:
    """Searches a stream, once the caller's rights were asked. Raises RequestError, BoundReached."""
    index = broker.stream_indexes and broker.stream_indexes.of(vhost)
    name = _key(queue, index.names(queue.incarnation) if index else (), asked.key)
    most = broker.config.stream_search_results_max
    if not 1 <= asked.most <= most:
        raise bad_request(f"max must be from 1 to {most} (stream_search_results_max)")
    first = -TIME_MOST if asked.first is None else asked.first
    last = TIME_MOST if asked.last is None else asked.last
    if first > last:
        raise bad_request("the range of time ends before it begins")
    searching = Searching(broker, index, queue)
    answer = await searching.find(name, asked.value, first, last, asked.most)
    return Found(answer, name, index.whole_from(queue.incarnation, name))


class Searching:
    """One search through a stream, by the index of its vhost."""

    def __init__(self, broker: Any, index: Any, queue: Any) -> None:
        self._broker = broker
        self._index = index
        self._queue = queue

    async def find(self, name: str, value: bytes, first: int, last: int, most: int) -> Answer:
        """The newest messages with a key between two times (ms since 1970, included)."""
        with self.entered():
            lacking = await self.prepare()
            answer = await self.look(name, value, first, last, most)
        for reason in lacking:
            answer.lacks(reason)
        return answer

    def entered(self) -> AbstractContextManager[None]:
        """Around a search of one or several looks. Raises BoundReached."""
        most = self._broker.config.stream_searches_max
        entered: AbstractContextManager[None] = self._broker.stream_indexes.searching(most)
        return entered

    async def prepare(self) -> list[str]:
        """Lets what was published before the search be found by it. Why something may be
        missing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                await self._broker.synced(records=True)
        behind = await self._catch_up()
        reasons = []
        if behind:
            problem = f": {self._index.problem}" if self._index.problem else ""
            reasons.append(f"the index is {behind} bytes behind the stream{problem}")
        if not self._index.is_whole:
            reasons.append("damaged parts of the index are being made again")
        return reasons

    async def look(self, name: str, value: bytes, first: int, last: int, most: int) -> Answer:
        """One look into the index as it is."""
        reads = self._broker.config.stream_search_reads_max
        wanted = Wanted(first, last, most, reads=reads)
        call = self._index.search(self._queue, name, value, wanted)
        answer: Answer = await asyncio.to_thread(call)
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


def _key(queue: Any, names: tuple[str, ...], asked: str | None) -> str:
    """The key of a stream that a search names."""
    where = describe("queue", queue.name, queue.vhost_name)
    if not names:
        raise bad_request(
            f"{where} has no index: set x-stream-index or the policy key stream-index, such as "
            "'message_id, header:order_id'"
        )
    # The history's places are no key that people search by.
    shown = [name for name in names if name != PLACE_KEY]
    if asked is None and len(shown) == 1:
        return shown[0]
    for name in (asked, f"header:{asked}"):
        if name in names:
            return name
    raise bad_request(
        f"{where} is not indexed by '{(asked or '')[:100]}', but by {', '.join(shown) or 'no key'}"
    )
