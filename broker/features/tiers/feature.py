"""The tiers of a broker: what is done when, and what can be seen of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.features.interface import Feature
from broker.features.tiers.carrier import Carrier, Pause
from broker.features.tiers.cold import ColdCache
from broker.features.tiers.index_objects import IndexObjects, Store, group_of_index
from broker.features.tiers.register import Register, group_of_stream
from broker.features.tiers.uploads import Uploads
from broker.kernel import clock
from broker.schema.tier_work import Answer
from broker.store.files import disk

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.vhosts.vhost import VHost

log = logging.getLogger("leveret.tiers")

CACHE = "run/cold"
DELETIONS_AT_ONCE = 16
OPEN_PAUSE_MOST_S = 10.0
INCARNATION = re.compile("[0-9a-f]{16}")


class Tiers(Feature):
    """Streams ask it as `tier_list.Tier`."""

    def __init__(self, host: Any) -> None:
        self._host = host
        directory = str(host.config.data_dir)
        self._directory = directory
        self.carrier = Carrier("")
        self._pause = Pause(lambda: float(host.config.tier_retry_max))
        self._deletion_pause = Pause(lambda: float(host.config.tier_retry_max))
        self._register = Register(host.persister, directory)
        self._uploads = Uploads(
            host, self.carrier, self._register, self._pause, lambda: self.may_write
        )
        self._cold = ColdCache(host, self.carrier, f"{directory}/{CACHE}")
        self._index = Store(host, self.carrier, self._register, lambda: self.may_write, self._due)
        self._pauses = (self._pause, self._cold.pause, self._deletion_pause, self._index.pause)
        self._deleting = 0
        self._deleted = 0
        self._compacted = 0
        self._owner = ""
        """Whose the prefix of the store is: an appliance's id, empty while it is not known."""
        self._opening = False
        self._open_pause = Pause(lambda: min(OPEN_PAUSE_MOST_S, host.config.tier_retry_max))
        self._open_problem = ""
        self.carrier.disowned = self._disowned
        host.tiers = self

    # -- start -------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Everything is recovered: objects that no list names any more are to go. Raises OSError,
        ValueError."""
        self.carrier.appliance = self._host.identities.appliance
        disk.remove_tree(f"{self._directory}/{CACHE}")
        disk.makedirs(f"{self._directory}/{CACHE}")
        self._register.recover()
        listed: dict[str, set[str]] = {}
        kept = disk.listdir(f"{self._directory}/quarantine")
        unsure = {found for name in kept for found in INCARNATION.findall(name)}
        for queue in self._streams():
            group, held = group_of_stream(queue.incarnation), queue.store.listed
            listed[group] = set(held.listed.values()) if held is not None else set()
            if held is not None and not held.is_whole:
                unsure.add(group)
        directories = [vhost.directory for vhost in self._host.vhosts.values()]
        later = {group_of_index(each) for each in directories if disk.exists(f"{each}/index")}
        self._register.settle(listed, unsure, later, self._due())

    def _streams(self) -> Iterator[Any]:
        for vhost in self._host.vhosts.values():
            for queue in vhost.queues.values():
                if queue.type == "stream":
                    yield queue

    def _due(self) -> int:
        return int(clock.now() + 1000 * self._host.config.tier_grace)

    # -- what the broker calls ---------------------------------------------------------------------

    def queue_configured(self, vhost: VHost, queue: MessageQueue) -> None:
        if queue.type == "stream":
            queue.store.tier = self
            self._uploads.configure(queue)

    def queue_deleted(self, queue: MessageQueue, now_ms: int) -> None:
        if queue.type == "stream":
            self._uploads.forget(queue)
            self._cold.forget_stream(queue.incarnation)
            self._register.end(group_of_stream(queue.incarnation), self._due())

    def tick(self, now_ms: int) -> Iterator[Callable[[], object] | None] | None:
        """Once a second: what waited for its time is begun."""
        streams = self._uploads.streams
        if not streams and not self._register.objects:
            return None
        is_shut = self.carrier.is_there and not self.may_write and not self._opening
        if is_shut and self._open_pause.is_over:
            self._open()
        return self._steps(streams)

    def _steps(self, streams: list[Any]) -> Iterator[Callable[[], object] | None]:
        if streams:
            self._register.prepare()
        for queue in streams:
            self._uploads.relieve(queue)
            if queue.store.total:
                queue.store.list_of_tiers().prepare()
            yield None
        self._uploads.go_on()
        self._delete()
        if streams:
            self._compacted += 1
            one = streams[self._compacted % len(streams)]
            if one.store.listed is not None:
                one.store.listed.compact()
        self._register.compact()

    # -- whose the store is ------------------------------------------------------------------------

    @property
    def may_write(self) -> bool:
        """Whether the store is there and its prefix this appliance's."""
        return self.carrier.is_there and self._owner == self.carrier.appliance != ""

    def connected(self, send: Callable[[Any], object]) -> None:
        """A tiers process is there."""
        self.carrier.connect(send)
        self._owner = self._open_problem = ""
        # What failed did so because it was not there.
        for pause in (self._open_pause, *self._pauses):
            pause.succeed()
        if self._uploads.streams or self._register.objects:
            self._open()

    def disconnected(self) -> None:
        """The tiers process has ended."""
        self._owner = ""
        self.carrier.disconnect()

    def _open(self) -> None:
        self._opening = True
        known = self._register.owned == self._host.config.tier_store
        self.carrier.give("open", self._opened, known=known)

    def _opened(self, answer: Answer) -> None:
        self._opening = False
        self._owner = answer.owner
        self._open_problem = answer.problem
        if answer.fault:
            self._open_pause.fail(answer.problem)
        if self.may_write:
            self._open_pause.succeed()
            self._register.own(self._host.config.tier_store)
            self._uploads.go_on()
        elif answer.owner and self._host.config.tier_store_is_inside:
            # A backup's copy has its own copy of the objects, too.
            self.adopt(lambda _: None)

    def _disowned(self, answer: Answer) -> None:
        if self._open_problem != answer.problem:
            log.error("%s", answer.problem)
        self._owner, self._open_problem = answer.owner, answer.problem

    def adopt(self, done: Callable[[Answer], object]) -> None:
        """This appliance takes the prefix of the store."""

        def adopted(answer: Answer) -> None:
            if not answer.fault:
                self._owner, self._open_problem = answer.owner, ""
                self._register.own(self._host.config.tier_store)
                log.warning("this appliance has taken %s", self._host.config.tier_store)
                self._uploads.go_on()
            done(answer)

        self.carrier.give("adopt", adopted)

    # -- what streams ask --------------------------------------------------------------------------

    def cached(self, cursor: Any, summary: Any, position: int, length: int) -> Any:
        return self._cold.cached(cursor, summary, position, length)

    def fetch(self, cursor: Any, summary: Any, position: int, length: int) -> int:
        return self._cold.fetch(cursor, summary, position, length)

    def doubt(self, store: Any, summary: Any) -> None:
        self._cold.doubt(store, summary)

    def dropped(self, store: Any, summary: Any) -> None:
        self._cold.forget((store.incarnation, summary.number))
        self._uploads.dropped(store, summary)

    def index_objects(self, directory: str) -> IndexObjects:
        """The objects of the index of the vhost with this directory."""
        return IndexObjects(self._index, group_of_index(directory))

    # -- deletions ---------------------------------------------------------------------------------

    def _delete(self) -> None:
        now = clock.now()
        while (
            self.may_write
            and self._deletion_pause.is_over
            and self._deleting < DELETIONS_AT_ONCE
            and (name := self._register.take_due(now)) is not None
        ):
            self._deleting += 1
            self.carrier.give("delete", partial(self._is_deleted, name), name=name)

    def _is_deleted(self, name: str, answer: Answer) -> None:
        self._deleting -= 1
        if answer.fault:
            self._register.put_back(name)
            if self._deletion_pause.fail(answer.problem) and answer.fault != "away":
                log.error("deleting in the object store fails: %s", answer.problem)
            return
        self._deletion_pause.succeed()
        self._deleted += 1
        self._register.gone(name)
        self._delete()

    # -- what can be seen --------------------------------------------------------------------------

    @property
    def is_used(self) -> bool:
        """Whether any stream wants tiers, or there are objects."""
        return bool(self._uploads.streams or self._register.objects)

    def state(self) -> tuple[str, str]:
        """How the object store is, in a word and a sentence: `unused`, `fine`, `away` (no process,
        or the store fails), `foreign` (its prefix is another appliance's)."""
        problem = next((each.problem for each in self._pauses if each.problem), "")
        if not self.is_used:
            return "unused", "no stream has stream-tier"
        if not self.carrier.is_there:
            return "away", "the tiers process is not running"
        if self._open_problem:
            return "foreign" if self._owner else "away", self._open_problem
        if problem:
            return "away", problem
        return ("fine", "") if self.may_write else ("away", "it has not answered yet")

    def figures(self) -> dict[str, Any]:
        """For the API, metrics and ctl."""
        pending = [self._uploads.pending(queue) for queue in self._uploads.streams]
        state, problem = self.state()
        cold, register, carrier = self._cold, self._register, self.carrier
        return {
            "store": self._host.config.tier_store,
            "state": state,
            "problem": problem,
            "appliance": carrier.appliance,
            "owner": self._owner,
            "streams": len(pending),
            "objects": register.count,
            "pending_segments": sum(count for count, _ in pending),
            "pending_bytes": sum(size for _, size in pending),
            "uploads_under_way": self._uploads.flying,
            "uploaded_segments": self._uploads.count,
            "uploaded_bytes": self._uploads.bytes,
            "upload_failures": self._pause.failures + self._index.pause.failures,
            "uploaded_index_files": self._index.count,
            "uploaded_index_bytes": self._index.bytes,
            "index_reads": self._index.reads,
            "refused_segments": len(self._uploads.refused),
            "objects_to_delete": register.condemned,
            "deleted_objects": self._deleted,
            "deletion_failures": self._deletion_pause.failures,
            "cache_bytes": cold.bytes,
            "cache_bytes_max": self._host.config.tier_cache_max,
            "cache_hits": cold.hits,
            "cache_misses": cold.misses,
            "fetched_blocks": cold.blocks,
            "fetches_under_way": cold.flying,
            "fetch_failures": cold.pause.failures,
            "waiting_readers": cold.waiting,
            "cancelled_readers": cold.told,
            "store_requests": carrier.requests,
            "store_bytes_sent": carrier.sent,
            "store_bytes_received": carrier.received,
        }

    def problems(self) -> list[tuple[str, str, str]]:
        """For the list of problems: severity, name, sentence."""
        found = []
        state, problem = self.state()
        if state in ("away", "foreign") and problem != "it has not answered yet":
            waits = sum(self._uploads.pending(queue)[0] for queue in self._uploads.streams)
            text = f"object store {self._host.config.tier_store}: {problem}"
            found.append(("warn", "object store", f"{text}; {waits:,} segments wait"))
        if self._uploads.refused:
            why = next(iter(self._uploads.refused.values()))
            count = len(self._uploads.refused)
            text = f"{count:,} segments of streams stay on this disk: {why}"
            found.append(("warn", "tiers", text))
        return found
