"""Reading segments that are only in the object store: for the thread that indexes a stream
(`Ahead`), and for searches (`ColdReads`). Both ask as consumers do (`tier_list.Tier`), so what is
read is in the cache of tiers, and every block was compared with its checksum.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from broker.features.stream_index.feeding import Part
from broker.features.stream_index.reading import LARGE
from broker.schema.tier_work import BLOCK
from broker.store.files import disk

AT_ONCE = 4
"""Reads of one search that are under way at a time."""

LOOK_S = 0.25
"""How often a search that waits looks whether there is time left."""

TRIES = 3
"""A copy may be thrown away for others before it was read."""

NOT_NOW = "the object store does not give them now; the log and the node's page say why"
"""Who may search a stream need not know where the store is."""


class NotReadable(Exception):
    """Bytes of a segment in the object store cannot be had now; the text says why."""


class Ahead:
    """Has the parts of one stream fetched that are to be indexed next. On the loop."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.cold_run = 0
        """How many reads followed each other; see `Tier`."""
        self.problem = ""
        """Why the last one failed; empty: it did not."""
        self._is_waiting = False

    def placed(self, part: Part) -> Part | None:
        """The part with the file that has its beginning, at least a whole record of it; None: that
        is on its way."""
        tier = self.store.tier
        if tier is None:
            self.problem = f"messages cannot be read: {NOT_NOW}"
            return None
        if self._is_waiting:
            return None
        wanted = min(LARGE, part.end - part.position)
        copy = tier.cached(self, part.summary, part.position, wanted)
        if copy is None:
            self._is_waiting = True
            tier.fetch(self, part.summary, part.position, wanted)
            return None
        self.cold_run += 1
        self.problem = ""
        block = (part.position + wanted - 1) // BLOCK + 1
        while block in copy.blocks:
            block += 1
        return part._replace(path=copy.path, readable=min(part.end, block * BLOCK))

    def cold_ready(self, problem: str) -> None:
        """See `Tier.fetch`."""
        self._is_waiting = False
        self.problem = f"messages cannot be read: {NOT_NOW}" if problem else ""


class ColdReads:
    """The reads of one search. At most `most` requests to the object store are made for them."""

    def __init__(
        self,
        on_loop: Callable[[Callable[[], object]], object],
        time_left: Callable[[], float],
        most: int,
    ) -> None:
        self.on_loop = on_loop
        self.time_left = time_left
        self.most = most
        self.fetched = 0
        """Requests that were made."""

    def ask(self, store: Any, segment: int, position: int, length: int) -> Wish:
        """Has bytes of a segment fetched; any thread may wait for them."""
        wish = Wish(self, store, segment, position, length)
        self.on_loop(wish.begin)
        return wish


class Wish:
    """Bytes of a segment that a search wants to read."""

    cold_run = 0

    def __init__(
        self, reads: ColdReads, store: Any, segment: int, position: int, length: int
    ) -> None:
        self.store = store
        self._reads = reads
        self._segment = segment
        self.position = position
        self.length = length
        self._is_settled = threading.Event()
        self._problem = ""
        self._path = ""

    # -- on the loop -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Looks where the bytes are, and has them fetched."""
        summary, tier = self.store.summary_of(self._segment), self.store.tier
        self._path = self._problem = ""
        if summary is None or not summary.cold:
            # The stream dropped it: there is nothing to read.
            self._is_settled.set()
            return
        if tier is None:
            self._fail(NOT_NOW)
            return
        copy = tier.cached(self, summary, self.position, self.length)
        if copy is not None:
            self._path = copy.path
            self._is_settled.set()
            return
        blocks = (self.position + self.length - 1) // BLOCK - self.position // BLOCK + 1
        if self._reads.fetched + blocks > self._reads.most:
            self._fail(
                f"{self._reads.most} requests to the object store were made for it, and no more are"
                " (stream_search_fetches_max)"
            )
            return
        self._reads.fetched += tier.fetch(self, summary, self.position, self.length)

    def cold_ready(self, problem: str) -> None:
        """See `Tier.fetch`."""
        if problem:
            self._fail(NOT_NOW)
        else:
            self.begin()

    def _fail(self, problem: str) -> None:
        self._problem = problem
        self._is_settled.set()

    def doubt(self) -> None:
        """What was read is wrong."""
        summary, tier = self.store.summary_of(self._segment), self.store.tier
        if summary is not None and summary.cold and tier is not None:
            tier.doubt(self.store, summary)

    # -- in a thread -------------------------------------------------------------------------------

    def read(self) -> bytes | None:
        """The bytes; None: the stream does not hold the segment any more. Raises NotReadable,
        OSError."""
        for _ in range(TRIES):
            while not self._is_settled.wait(min(LOOK_S, max(0.0, self._reads.time_left()))):
                if self._reads.time_left() <= 0:
                    raise NotReadable("the time for a search is over")
            if self._problem:
                raise NotReadable(self._problem)
            if not self._path:
                return None
            try:
                return disk.read_part(self._path, self.position, self.length)
            except FileNotFoundError:
                self._is_settled.clear()
                self._reads.on_loop(self.begin)
        raise NotReadable("copies of them are removed before they are read (tier_cache_max)")

    def throw_away(self) -> None:
        """What was read is not what the object has: it is fetched again for the next reader."""
        self._reads.on_loop(self.doubt)
