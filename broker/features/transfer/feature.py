"""All transfers of a broker: which run, which wait, and which are over."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from broker.features.interface import Feature
from broker.features.transfer.figures import Figures
from broker.features.transfer.job import Job, rules_of
from broker.features.transfer.preview import preview_of
from broker.features.transfer.records import FILE, STATES, Transfer, TransfersFile
from broker.features.transfer.sources import end_of
from broker.kernel import clock
from broker.schema.errors import BoundReached

log = logging.getLogger("leveret.transfer")


class Transfers(Feature):
    """Moves and copies under way, one slice of one of them in a turn of the loop."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._last_id = 0
        self._all: dict[int, Transfer] = {}
        self._jobs: dict[int, Job] = {}
        self.figures = Figures()
        self._due: deque[Job] = deque()
        self._is_set = False
        self._has_begun = False
        self._is_saved = True

    # -- start and stop ----------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Reads what is kept. Raises SettingsError."""
        content = self._host.files.load(FILE, TransfersFile) or TransfersFile()
        self._all = {each.id: each for each in content.transfers}
        self._last_id = max([content.last_id, *self._all])
        for each in self._all.values():
            if not each.is_over and each.state != "paused":
                each.state, each.reason = "waiting", ""

    def vhost_started(self, vhost: Any) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._host.punctual(0, self._admit)

    def stop(self, now_ms: int) -> None:
        for job in self._jobs.values():
            job.rest()
        if self._jobs:
            self._save()

    def tick(self, now_ms: int) -> Iterator[Callable[[], object] | None] | None:
        """Progress is kept once a second."""
        if self._jobs:
            self._save()
        return self._flushed() if not self._is_saved else None

    def _flushed(self) -> Iterator[Callable[[], object] | None]:
        self._is_saved = True
        yield self._flush

    def _flush(self) -> None:
        try:
            self._host.files.flush()
        except OSError as error:
            log.error("the progress of transfers is not on the disk: %s", error.strerror)
            self._is_saved = False

    def _save(self) -> None:
        """Gives the file its new content; the caller or `tick` sees that it is written."""
        rows = [msgspec.to_builtins(each) for each in self._all.values()]
        self._host.files.put(FILE, {"last_id": self._last_id, "transfers": rows})
        self._is_saved = False

    # -- what is asked of it -----------------------------------------------------------------------

    def rows(self) -> list[Transfer]:
        """All that are kept, newest first."""
        return list(reversed(self._all.values()))

    def by_state(self) -> dict[str, int]:
        """How many of those there are, of every state."""
        counts: dict[str, int] = dict.fromkeys(STATES, 0)
        for each in self._all.values():
            counts[each.state] += 1
        return counts

    def get(self, id: int) -> Transfer | None:
        return self._all.get(id)

    def preview(self, queue: Any, most: int, **filter: Any) -> Any:
        """Looks at the first `most` messages of a queue; see `preview_of`. Raises BadPattern."""
        return preview_of(queue, rules_of(**filter), most)

    def begin(self, queue: Any, end: int | None = None, **wanted: Any) -> Transfer:
        """Starts a transfer; `wanted` are fields of `Transfer`, which were checked. Of a stream
        `end` is the offset behind the last message, if not all up to its end are wanted. Raises
        BoundReached."""
        most = self._host.config.transfers_max
        if sum(not each.is_over for each in self._all.values()) >= most:
            raise BoundReached(
                f"{most} transfers are under way or wait, and no more are allowed (transfers_max)"
            )
        self._last_id += 1
        transfer = Transfer(
            id=self._last_id,
            source_vhost=queue.vhost_name,
            source=queue.name,
            source_incarnation=queue.incarnation,
            created=clock.now(),
            **wanted,
        )
        transfer.ends = list(end_of(queue).items())
        transfer.total = queue.messages_ready
        if queue.type == "stream":
            self._set_range(transfer, queue, end)
        self._all[transfer.id] = transfer
        self._forget_old(most)
        self._save()
        log.info(
            "transfer %d: user '%s' wants to %s %d messages of queue '%s' in vhost '%s' to %s '%s' "
            "in vhost '%s'",
            transfer.id,
            transfer.user or "",
            transfer.mode,
            transfer.total,
            transfer.source,
            transfer.source_vhost,
            transfer.target_type,
            transfer.target,
            transfer.target_vhost,
        )
        self._host.punctual(0, self._admit)
        return transfer

    def _set_range(self, transfer: Transfer, queue: Any, end: int | None) -> None:
        """Which offsets of a stream are looked at, and how many messages those are."""
        figures = queue.stream_figures()
        last = figures["next_offset"] if end is None else min(end, figures["next_offset"])
        transfer.at = transfer.begin = max(transfer.begin, figures["first_offset"])
        transfer.ends = [(0, last)]
        transfer.total = max(0, last - transfer.at)
        if transfer.offsets is not None:
            transfer.offsets = sorted(set(transfer.offsets))
            transfer.total = len(transfer.offsets)

    def pause(self, transfer: Transfer, user: str) -> None:
        """A transfer stays where it is, over restarts, too, until it is resumed."""
        job = self._jobs.get(transfer.id)
        if job is not None:
            job.pause()
        else:
            transfer.state, transfer.reason = "paused", ""
        self._save()
        log.info("transfer %d: paused by user '%s'", transfer.id, user)

    def resume(self, transfer: Transfer, rate: int | None, user: str) -> None:
        """A paused transfer continues; one that runs may get another rate."""
        if rate is not None:
            transfer.rate = rate
        job = self._jobs.get(transfer.id)
        if job is not None:
            job.resume()
        elif transfer.state == "paused":
            transfer.state = "waiting"
        self._save()
        log.info("transfer %d: resumed by user '%s'", transfer.id, user)
        self._host.punctual(0, self._admit)

    def delete(self, transfer: Transfer, user: str) -> None:
        """Stops a transfer; one that is over is taken off the list."""
        if transfer.is_over:
            self._all.pop(transfer.id, None)
        else:
            job = self._jobs.get(transfer.id) or self._job(transfer)
            if job.stop():
                self._jobs.pop(transfer.id, None)
                self._host.punctual(0, self._admit)
            log.info("transfer %d: stopped by user '%s'", transfer.id, user)
        self._save()

    def _forget_old(self, most: int) -> None:
        """As many as may be under way are kept when they are over, too."""
        over = [each.id for each in self._all.values() if each.is_over]
        for id in over[: max(0, len(over) - most)]:
            del self._all[id]

    # -- running -----------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Lets those run that waited longest; a queue has one at a time."""
        busy = {(job.transfer.source_vhost, job.transfer.source) for job in self._jobs.values()}
        for transfer in self._all.values():
            if len(self._jobs) >= self._host.config.transfers_at_once:
                break
            source = transfer.source_vhost, transfer.source
            is_due = not transfer.is_over and transfer.state != "paused"
            if not is_due or transfer.id in self._jobs or source in busy:
                continue
            busy.add(source)
            job = self._jobs[transfer.id] = self._job(transfer)
            self._ready(job)

    def _job(self, transfer: Transfer) -> Job:
        return Job(self._host, transfer, self._save, self.figures)

    def _ready(self, job: Job) -> None:
        self._due.append(job)
        if not self._is_set:
            self._is_set = True
            self._host.punctual(0, self._turn)

    def _turn(self) -> None:
        """A slice of the transfer whose turn it is."""
        self._is_set = False
        if self._host.stopping:
            return
        job = self._due.popleft()
        if self._jobs.get(job.transfer.id) is job:
            wait = job.step()
            if wait is None:
                del self._jobs[job.transfer.id]
                self._admit()
            elif wait:
                self._host.punctual(wait, partial(self._ready, job))
            else:
                self._due.append(job)
        if self._due and not self._is_set:
            self._is_set = True
            self._host.punctual(0, self._turn)
