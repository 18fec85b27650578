"""Puts sealed segments into the object store, oldest first, and takes their files off this disk as
far as each stream wants.

The order: the object's name is in the register and synced; the tiers process makes the object and
reads it back; the list of the stream names it and is synced; then the file may go.
"""

from __future__ import annotations

import logging
import secrets
from bisect import bisect_right
from collections import deque
from functools import partial
from typing import Any

from broker.features.tiers.carrier import Carrier, Pause
from broker.features.tiers.register import Register
from broker.kernel import clock
from broker.schema.errors import describe
from broker.schema.tier_work import Answer, Tiered

log = logging.getLogger("leveret.tiers")

COLD_AT_ONCE = 64
"""Files of one stream that leave this disk in one go."""

LOOKED_AT_ONCE = 256
"""Segments of one stream that are looked at for one to put there or to take away."""

Key = tuple[int, int]
"""Incarnation of a stream and number of a segment."""


class Uploads:
    """The uploads of all streams. `may_write()`: the store is there and this appliance's."""

    def __init__(
        self, host: Any, carrier: Carrier, register: Register, pause: Pause, may_write: Any
    ) -> None:
        self._host = host
        self._carrier = carrier
        self._register = register
        self._pause = pause
        self._may_write = may_write
        self._streams: deque[Any] = deque()
        self._flying: dict[Key, str] = {}
        self._names: dict[Key, str] = {}
        """Objects that were to be made and, as far as it is known, were not: the same names are
        used when it is tried again."""
        self._uploaded_to: dict[int, int] = {}
        """Incarnation -> segment up to which all that can be uploaded is."""
        self._cold_to: dict[int, int] = {}
        """Likewise for files that left this disk."""
        self.refused: dict[Key, str] = {}
        """Segments that stay here, and why."""
        self.count = 0
        self.bytes = 0

    @property
    def flying(self) -> int:
        return len(self._flying)

    @property
    def streams(self) -> list[Any]:
        """Those whose segments are to be put into the store."""
        return list(self._streams)

    def configure(self, queue: Any) -> None:
        """A stream is there, or other arguments hold for it."""
        is_in = queue in self._streams
        if queue.retention.tier and not is_in:
            self._streams.append(queue)
        elif not queue.retention.tier and is_in:
            self._streams.remove(queue)
        self._cold_to.pop(queue.incarnation, None)

    def forget(self, queue: Any) -> None:
        """A stream was deleted."""
        if queue in self._streams:
            self._streams.remove(queue)
        incarnation = queue.incarnation
        for place in (self._uploaded_to, self._cold_to):
            place.pop(incarnation, None)
        for keyed in (self._names, self.refused):
            for key in [key for key in keyed if key[0] == incarnation]:
                del keyed[key]

    def pending(self, queue: Any) -> tuple[int, int]:
        """Sealed segments of a stream that are not in the store yet, and about how many bytes."""
        store = queue.store
        count = max(0, len(store.summaries) - 1 - store.tiered_segments)
        size = max(0, store.disk_bytes - (store.tiered_bytes - store.cold_bytes))
        return count, size if count else 0

    # -- uploads -----------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Begins as many uploads as may be under way, each stream in turn."""
        for _ in range(len(self._streams)):
            if (
                len(self._flying) >= self._host.config.tier_uploads_at_once
                or not self._pause.is_over
                or not self._may_write()
            ):
                return
            queue = self._streams[0]
            self._streams.rotate(-1)
            summary = self._next(queue)
            if summary is not None:
                self._begin(queue, summary)

    def _next(self, queue: Any) -> Any:
        """The oldest segment of a stream that can be uploaded."""
        store = queue.store
        if queue.deleted:
            return None
        summaries = store.summaries
        done_to = self._uploaded_to.get(queue.incarnation, 0)
        start = bisect_right(summaries, done_to, key=_number)
        found = None
        is_done = True
        for summary in summaries[start : start + LOOKED_AT_ONCE]:
            if summary.number >= store.safe_number or not summary.sealed:
                break
            key = queue.incarnation, summary.number
            stays = summary.tiered is not None or summary.gaps is not None or key in self.refused
            is_done = is_done and stays
            if is_done:
                self._uploaded_to[queue.incarnation] = summary.number
            if not stays and key not in self._flying:
                found = summary
                break
        return found

    def _begin(self, queue: Any, summary: Any) -> None:
        key = queue.incarnation, summary.number
        name = self._names.get(key)
        if name is not None:
            self._flying[key] = name
            self._put(queue, summary, "")
            return
        boot = self._host.definitions.boot
        name = (
            f"{self._carrier.appliance}/{queue.incarnation:016x}/"
            f"{summary.number:010d}-{boot}-{secrets.token_hex(8)}"
        )
        self._names[key] = self._flying[key] = name
        self._register.intend(name, partial(self._put, queue, summary))

    def _put(self, queue: Any, summary: Any, problem: str) -> None:
        """The name is in the register."""
        key = queue.incarnation, summary.number
        if problem or queue.deleted or summary.dropped:
            self._ends(key)
            if problem:
                self._pause.fail(problem)
            return
        self._carrier.give(
            "put",
            partial(self._made, queue, summary),
            name=self._flying[key],
            path=f"{queue.store.directory}/msgs.{summary.number:010d}",
            length=summary.length,
            incarnation=queue.incarnation,
            segment=summary.number,
        )

    def _made(self, queue: Any, summary: Any, answer: Answer) -> None:
        """The tiers process has made the object, or could not."""
        key = queue.incarnation, summary.number
        name = self._flying[key]
        tiered = Tiered(name, answer.etag, summary.length, answer.check, answer.checks)
        if not answer.fault and not tiered.fits():
            answer.fault, answer.problem = "wrong", "checksums of its blocks are missing"
        if queue.deleted or summary.dropped:
            self._ends(key)
            self._give_up(key, name)
        elif answer.fault:
            self._ends(key)
            self._failed(queue, summary, name, answer)
        else:
            store = queue.store
            store.list_of_tiers().add(
                summary.number,
                tiered,
                summary.encode(queue.incarnation),
                partial(self._listed, queue, summary, tiered),
            )

    def _failed(self, queue: Any, summary: Any, name: str, answer: Answer) -> None:
        key = queue.incarnation, summary.number
        what = f"segment {summary.number} of {describe('queue', queue.name, queue.vhost_name)}"
        if answer.fault == "local":
            self.refused[key] = answer.problem
            self._give_up(key, name)
            log.error("%s stays on this disk: %s", what, answer.problem)
            return
        if answer.fault == "wrong":
            # Another object of this name, or one that cannot be read back: never used again.
            self._give_up(key, name)
        if answer.fault == "owner":
            return
        if self._pause.fail(answer.problem) and answer.fault != "away":
            log.error(
                "%s could not be put into the object store: %s; it is tried again, in longer and "
                "longer pauses, and stays on this disk",
                what,
                answer.problem,
            )

    def _listed(self, queue: Any, summary: Any, tiered: Tiered, problem: str) -> None:
        """The list names the object, and that is synced; or it cannot be written."""
        key = queue.incarnation, summary.number
        self._ends(key)
        if problem:
            if self._pause.fail(problem):
                log.error("%s; segments stay on this disk, and it is tried again", problem)
            return
        if self._pause.succeed():
            log.warning("uploads to the object store succeed again")
        self._names.pop(key, None)
        self.count += 1
        self.bytes += tiered.length
        if queue.store.enter(summary, tiered):
            self.relieve(queue)
        elif not queue.deleted:
            self._register_end(queue.store, summary.number, tiered.name)
        self.go_on()

    def _ends(self, key: Key) -> None:
        self._flying.pop(key, None)

    def _give_up(self, key: Key, name: str) -> None:
        """The object, if there is one, is of no use."""
        self._names.pop(key, None)
        self._register.condemn(name, self._due())

    def _due(self) -> int:
        return int(clock.now() + 1000 * self._host.config.tier_grace)

    # -- files leave this disk ---------------------------------------------------------------------

    def relieve(self, queue: Any) -> None:
        """Takes the oldest files away as far as the stream's limits say, if an object holds
        them."""
        limits, store = queue.retention, queue.store
        if not limits.tier or (limits.local_bytes < 0 and limits.local_age < 0) or queue.deleted:
            return
        oldest = clock.now() - limits.local_age if limits.local_age >= 0 else -1
        summaries = store.summaries
        start = bisect_right(summaries, self._cold_to.get(queue.incarnation, 0), key=_number)
        is_behind, went = True, 0
        for summary in summaries[start : start + LOOKED_AT_ONCE]:
            is_too_much = 0 <= limits.local_bytes < store.disk_bytes
            if went >= COLD_AT_ONCE or not (is_too_much or summary.last_timestamp < oldest):
                break
            if summary.tiered is not None and not summary.cold and store.make_cold(summary):
                went += 1
            is_behind = is_behind and (
                summary.cold
                or summary.gaps is not None
                or (queue.incarnation, summary.number) in self.refused
            )
            if is_behind:
                self._cold_to[queue.incarnation] = summary.number

    # -- what streams drop -------------------------------------------------------------------------

    def dropped(self, store: Any, summary: Any) -> None:
        """A stream does not hold this segment any more."""
        self.refused.pop((store.incarnation, summary.number), None)
        self._register_end(store, summary.number, summary.tiered.name)

    def _register_end(self, store: Any, number: int, name: str) -> None:
        """An object leaves its list; when that is synced it is condemned."""

        def removed(problem: str) -> None:
            if problem:
                # The list still names it: so does the next start.
                log.error("%s", problem)
            else:
                self._register.condemn(name, self._due())

        if store.listed is not None:
            store.listed.remove(number, removed)


def _number(summary: Any) -> int:
    number: int = summary.number
    return number
