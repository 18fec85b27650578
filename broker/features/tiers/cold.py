"""Reading what is only in the object store: blocks of segments come into files of a local cache,
ahead of who reads.

A reader waits for the blocks that it needs, and no other does. What comes ahead of it grows with
what it has read on; the cache gives up what was not used for longest. A block that does not come
is asked for again after a pause; a reader that has waited longer than `tier_read_patience` gets
the error.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from broker.features.tiers.carrier import Carrier, Pause
from broker.schema.tier_work import BLOCK, Answer

log = logging.getLogger("leveret.tiers")

Key = tuple[int, int]
"""Incarnation of a stream and number of a segment."""

RUN_MOST = 10

PAUSE_MOST_S = 10.0

LOOK_S = 0.25
"""How often readers that wait are looked after."""


class Waiter(NamedTuple):
    """A reader that waits for bytes of a segment, since `since` (seconds)."""

    cursor: Any
    position: int
    length: int
    since: float


class Copy:
    """What is here, or on its way, of one segment."""

    def __init__(self, summary: Any, file: Any) -> None:
        self.summary = summary
        self.file = file
        self.flying: set[int] = set()
        self.asked: set[int] = set()
        """Blocks that wait for their turn."""
        self.awaited: set[int] = set()
        """The same, before all others: readers wait for them."""
        self.waiters: list[Waiter] = []
        self.is_void = False
        """It was given up: what comes of it is thrown away."""
        self.problem = ""
        """Why its object cannot be read, while others can."""
        self.retry_at = 0.0
        self.failures = 0

    @property
    def is_idle(self) -> bool:
        return not (self.flying or self.waiters or self.file.is_busy)

    @property
    def bytes(self) -> int:
        """Of the blocks that are here."""
        return sum(map(self.size_of, self.file.blocks))

    def size_of(self, block: int) -> int:
        size: int = min(BLOCK, self.file.length - block * BLOCK)
        return size

    def missing(self, position: int, length: int) -> int:
        """Of the blocks with these bytes, how many are neither here nor on their way."""
        blocks = range(position // BLOCK, (position + length - 1) // BLOCK + 1)
        return sum(not (each in self.file.blocks or each in self.flying) for each in blocks)

    def fail(self, problem: str, now: float) -> None:
        """Its object cannot be read, or its file is wrong: it is tried again after a pause."""
        self.problem = problem
        self.failures += 1
        self.retry_at = now + min(PAUSE_MOST_S, 2.0 ** min(self.failures, 8) / 2)


class ColdCache:
    """The cache in `directory`, which is empty."""

    def __init__(
        self,
        host: Any,
        carrier: Carrier,
        directory: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._carrier = carrier
        self._directory = directory
        self._now = now
        self._copies: OrderedDict[Key, Copy] = OrderedDict()
        self._queue: deque[tuple[Copy, Key, int]] = deque()
        self._flying = 0
        self._serial = 0
        self._is_set = False
        self.pause = Pause(lambda: min(PAUSE_MOST_S, host.config.tier_retry_max), now)
        self.hits = self.misses = self.blocks = self.told = 0
        self.bytes = 0
        """What the cache takes of the disk, with what is on its way."""

    @property
    def waiting(self) -> int:
        """Readers that wait."""
        return sum(len(copy.waiters) for copy in self._copies.values())

    @property
    def flying(self) -> int:
        """Blocks on their way."""
        return self._flying

    # -- what readers ask --------------------------------------------------------------------------

    def cached(self, cursor: Any, summary: Any, position: int, length: int) -> Any:
        """See `tier_list.Tier`."""
        key = cursor.store.incarnation, summary.number
        copy = self._copies.get(key)
        if copy is None or not copy.file.has(position, length):
            self.misses += 1
            return None
        self.hits += 1
        self._copies.move_to_end(key)
        if cursor.cold_run:
            self._ask_ahead(cursor, summary, position)
        return copy.file

    def fetch(self, cursor: Any, summary: Any, position: int, length: int) -> int:
        """See `tier_list.Tier`."""
        key = cursor.store.incarnation, summary.number
        copy = self._copy(cursor.store, summary)
        missing = copy.missing(position, length)
        waiter = Waiter(cursor, position, length, self._now())
        copy.waiters.append(waiter)
        if self._now() >= copy.retry_at:
            self._ask_for(copy, key, waiter)
        if cursor.cold_run > 1:
            self._ask_ahead(cursor, summary, position)
        self._go_on()
        self._watch()
        return missing

    def doubt(self, store: Any, summary: Any) -> None:
        """The local copy of a segment was found wrong."""
        key = store.incarnation, summary.number
        copy = self._copies.get(key)
        if copy is not None:
            log.error("%s is damaged: it is fetched again", copy.file.path)
            self.forget(key)
            again = self._copy(store, copy.summary)
            again.failures = copy.failures
            again.fail("its local copy was damaged", self._now())

    def forget(self, key: Key) -> None:
        """A segment is not needed any more, or not this copy of it."""
        copy = self._copies.pop(key, None)
        if copy is not None:
            copy.is_void = True
            self.bytes -= copy.bytes
            self._let_go(copy)
            for waiter in copy.waiters:
                waiter.cursor.cold_ready("")

    def forget_stream(self, incarnation: int) -> None:
        """A stream was deleted."""
        for key in [key for key in self._copies if key[0] == incarnation]:
            self.forget(key)

    # -- which blocks ------------------------------------------------------------------------------

    def _copy(self, store: Any, summary: Any) -> Copy:
        key = store.incarnation, summary.number
        copy = self._copies.get(key)
        if copy is None:
            self._serial += 1
            path = f"{self._directory}/{key[0]:016x}-{key[1]:010d}-{self._serial}"
            file = store.copy_at(path, summary.length)
            copy = self._copies[key] = Copy(summary, file)
        self._copies.move_to_end(key)
        return copy

    def _ask_for(self, copy: Copy, key: Key, waiter: Waiter) -> None:
        """Has what a reader waits for fetched before anything else."""
        first, last = waiter.position // BLOCK, (waiter.position + waiter.length - 1) // BLOCK
        for block in range(last, first - 1, -1):
            self._ask(copy, key, block, first=True)

    def _ask(self, copy: Copy, key: Key, block: int, *, first: bool) -> None:
        if block in copy.file.blocks or block in copy.flying:
            return
        if block in copy.awaited or (block in copy.asked and not first):
            return
        entry = copy, key, block
        if first:
            copy.awaited.add(block)
            self._queue.appendleft(entry)
        else:
            copy.asked.add(block)
            self._queue.append(entry)

    def _ask_ahead(self, cursor: Any, summary: Any, position: int) -> None:
        """Has the next blocks fetched, the more the longer the reader read on."""
        most = self._host.config.tier_read_ahead
        ahead = min(most, BLOCK << min(cursor.cold_run, RUN_MOST))
        store = cursor.store
        at = position // BLOCK * BLOCK
        self._make_room(ahead, store.incarnation, summary.number)
        if self.bytes > self._host.config.tier_cache_max - BLOCK:
            return
        for each in _from(store, summary):
            if ahead <= 0 or not each.cold:
                break
            key = store.incarnation, each.number
            copy = self._copies.get(key) or self._copy(store, each)
            while ahead > 0 and at < each.length:
                self._ask(copy, key, at // BLOCK, first=False)
                at += BLOCK
                ahead -= BLOCK
            at = 0
        self._go_on()

    def _make_room(self, wanted: int, incarnation: int, number: int) -> None:
        """Gives up copies that nothing is under way for, longest unused first, but not what a
        reader of this segment wants next."""
        room = self._host.config.tier_cache_max - wanted
        if self.bytes <= room:
            return
        for key in list(self._copies):
            if self.bytes <= room:
                return
            if self._copies[key].is_idle and not (key[0] == incarnation and key[1] >= number):
                self.forget(key)

    # -- fetching ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Asks for as many blocks as may be on their way."""
        while self._queue and self._flying < self._host.config.tier_reads_at_once:
            if not self.pause.is_over or not self._carrier.is_there:
                return
            copy, key, block = self._queue.popleft()
            copy.asked.discard(block)
            copy.awaited.discard(block)
            if copy.is_void or block in copy.file.blocks or block in copy.flying:
                continue
            self._make_room(BLOCK, *key)
            tiered = copy.summary.tiered
            offset = block * BLOCK
            copy.flying.add(block)
            self.bytes += copy.size_of(block)
            self._flying += 1
            self._carrier.give(
                "get",
                partial(self._came, copy, key, block),
                name=tiered.name,
                etag=tiered.etag,
                path=copy.file.path,
                offset=offset,
                length=min(BLOCK, tiered.length - offset),
                check=tiered.check_of(block),
            )

    def _came(self, copy: Copy, key: Key, block: int, answer: Answer) -> None:
        self._flying -= 1
        copy.flying.discard(block)
        if copy.is_void or answer.fault:
            self.bytes -= copy.size_of(block)
        if copy.is_void:
            self._let_go(copy)
        elif answer.fault in ("store", "away", "local"):
            if self.pause.fail(answer.problem) and answer.fault != "away":
                log.error("reading from the object store fails: %s", answer.problem)
        elif answer.fault:
            if not copy.problem:
                log.error("%s", answer.problem)
            copy.fail(answer.problem, self._now())
        else:
            if self.pause.succeed():
                log.warning("reading from the object store succeeds again")
            self.blocks += 1
            copy.problem = ""
            copy.file.blocks.add(block)
            self._wake(copy)
        self._go_on()

    def _wake(self, copy: Copy) -> None:
        ready = [each for each in copy.waiters if copy.file.has(each.position, each.length)]
        if ready:
            copy.waiters = [each for each in copy.waiters if each not in ready]
            for waiter in ready:
                waiter.cursor.cold_ready("")

    def _let_go(self, copy: Copy) -> None:
        """Removes the file of a copy that was given up, once nothing writes to it or reads it."""
        if not copy.flying:
            if copy.file.is_busy:
                self._host.later(0.1, partial(self._let_go, copy))
            else:
                copy.file.remove()

    # -- time --------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._host.later(LOOK_S, self._look)

    def _look(self) -> None:
        """While readers wait: retries what failed, and fails readers that waited too long."""
        self._is_set = False
        now = self._now()
        latest = now - self._host.config.tier_read_patience
        for key, copy in list(self._copies.items()):
            late = [each for each in copy.waiters if each.since <= latest]
            copy.waiters = [each for each in copy.waiters if each.since > latest]
            for waiter in copy.waiters if now >= copy.retry_at else ():
                self._ask_for(copy, key, waiter)
            problem = copy.problem or self.pause.problem or "the object store does not answer"
            self.told += len(late)
            for waiter in late:
                waiter.cursor.cold_ready(problem)
        self._go_on()
        if self.waiting:
            self._watch()


def _from(store: Any, summary: Any) -> Any:
    """A stream's segments from this one on."""
    summaries = store.summaries
    first = bisect_left(summaries, summary.number, key=lambda each: each.number)
    for index in range(first, len(summaries)):
        yield summaries[index]
