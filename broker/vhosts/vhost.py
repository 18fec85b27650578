"""A vhost from its start to its end: what it finds again, serves, and leaves behind.

What is defined in it, and how that changes, is `broker.vhosts.defining`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from broker.fields import properties
from broker.fields.codec import octets
from broker.kernel.contracts import REJECTED, STORED
from broker.kernel.reached import Reached
from broker.kernel.steps import UNTIL_WRITTEN, Pause
from broker.kernel.through import Through
from broker.queues.types import MessageQueue
from broker.routing.exchange import BoundExchange
from broker.routing.types import INTERNAL, PREDECLARED, TYPES
from broker.store.directory.journal import Journal
from broker.store.directory.journal_compaction import JournalCompaction
from broker.store.files import disk
from broker.store.log.read_ahead import ReadAhead
from broker.vhosts.changes import queue_change, snapshot
from broker.vhosts.defining import DefiningVHost
from broker.vhosts.living import living_entries
from broker.vhosts.policies import move
from broker.vhosts.replaying import Replay, is_of_one_queue, set_aside
from broker.vhosts.tracing import EXCHANGE as TRACE_EXCHANGE
from broker.vhosts.tracing import Tracer
from broker.vhosts.weak import weakly

log = logging.getLogger("leveret.vhost")

# A journal with more entries than this for each object that lives is compacted at start.
WASTE_MAX = 4

QUEUES_A_STEP = 16
"""Of very many queues that a message goes to."""


class Published(NamedTuple):
    """What became of a message: how many queues it went to, and how many of them took it."""

    queues: int
    taken: int


class VHost(DefiningVHost):
    """One vhost. `parts` are what it is made of, as `DefiningVHost` takes them."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        directory: str,
        *,
        description: str = "",
        tags: list[str] | None = None,
        protected_from_deletion: bool = False,
        **parts: Any,
    ) -> None:
        super().__init__(name, incarnation, directory, **parts)
        self.description = description
        self.tags = tags or []
        self.protected_from_deletion = protected_from_deletion
        self.problems: list[str] = []
        self.owned: list[tuple[str, set[int]]] = []
        """Directories of features, with the incarnation ids that live there."""
        self.recovering = False
        self.lacks_definitions = False
        self.begun_anew = 0
        """Queues that could not be recovered and began empty at this start."""
        for exchange, kind in PREDECLARED:
            self._add_exchange(TYPES[kind](exchange, durable=True, internal=exchange in INTERNAL))
        self.tracer = Tracer(name, weakly(self._publish_traced), self._later)

    # -- start and stop ----------------------------------------------------------------------------

    def recover(self) -> set[int]:
        """Replays the journal and finds the shared bodies. Returns the incarnation ids of the
        queues that are there."""
        journal = Journal(self._persister, f"{self.directory}/definitions.journal")
        self._replaying = True
        replay = Replay(self.name, journal, self._apply)
        replay.run()
        replay.problems += [problem for problem in self._policies.to_all() if problem]
        self._replaying = False
        is_old = self._name_exchanges()
        self._journal = journal
        self.lacks_definitions = replay.lacks_definitions
        if self.lacks_definitions:
            replay.drop_loose(self._bindings)
        else:
            living = list(self._snapshot())
            if is_old or replay.entries > WASTE_MAX * max(len(living), 64):
                journal.rewrite(living)
        self.problems += replay.problems
        # The upper half of an incarnation is the number of this start.
        boot = self._next_incarnation() >> 32
        for problem in self.bodies.recover(boot & 0xFFFF):
            self.problems.append(f"shared bodies of vhost '{self.name}': {problem}")
        self.recovering = True
        for exchange in self.exchanges.values():
            self.exchange_configured(exchange)
        for queue in self.queues.values():
            self.queue_configured(queue)
        for feature in self._features:
            feature.vhost_recovered(self)
        self.recovering = False
        return {queue.incarnation for queue in self.queues.values()}

    def keep_definitions(self) -> None:
        """A damaged journal is replaced by what was found in it, once all that may be of lost
        definitions lies in quarantine: until then the next start has to see the damage too."""
        if self.lacks_definitions and self._journal is not None:
            self._journal.rewrite(self._snapshot())

    def _name_exchanges(self) -> bool:
        """Gives ids to exchanges that were declared when those had none; whether there were any."""
        nameless = [
            exchange
            for exchange in self.exchanges.values()
            if exchange.name and not exchange.name.startswith("amq.") and not exchange.incarnation
        ]
        for exchange in nameless:
            exchange.incarnation = self._next_incarnation()
        return bool(nameless)

    def recover_messages(self) -> Iterator[MessageQueue]:
        """Finds the queues' messages again, a queue a step."""
        with_files = set(disk.listdir(self.queues_directory))
        kept = [
            queue for queue in self.queues.values() if f"{queue.incarnation:016x}" in with_files
        ]
        ahead = ReadAhead([f"{self.queues_directory}/{queue.incarnation:016x}" for queue in kept])
        any_anew = False
        try:
            for queue in kept:
                try:
                    for problem in queue.recover():
                        self.problems.append(
                            f"queue '{queue.name}' in vhost '{self.name}': {problem}"
                        )
                except Exception as error:
                    if not is_of_one_queue(error):
                        raise
                    log.exception("a queue of vhost '%s' cannot be recovered", self.name)
                    self._begin_anew(queue, error)
                    any_anew = True
                ahead.passed()
                yield self.queues[queue.name]
        finally:
            ahead.stop()
        if any_anew and self._journal is not None:
            self._journal.rewrite(self._snapshot())
        self.bodies.finish_recovery()

    def _begin_anew(self, queue: MessageQueue, error: Exception) -> None:
        """The messages of a queue cannot be found again: its directory goes to quarantine as it is,
        and the queue is declared anew, empty, with all its bindings."""
        assert self._journal is not None
        definitions = self._journal.keep_copy()
        directory = f"{self.queues_directory}/{queue.incarnation:016x}"
        kept = set_aside(directory, self._persister.quarantine.directory)
        self.bodies.keep_all()
        self.begun_anew += 1
        move("queue", queue.policy, None)
        del self.queues[queue.name]
        self.argument_memory.give_back(queue.arguments)
        self._add_queue(queue_change(queue), self._next_incarnation(), None)
        if queue.paused:
            self.queues[queue.name].pause()
        self.problems.append(
            f"queue '{queue.name}' in vhost '{self.name}' cannot be recovered and begins empty "
            f"({type(error).__name__}: {error}); its messages are in {kept}, and the definitions "
            f"that name it in {definitions}"
        )

    @property
    def is_damaged(self) -> bool:
        """Whether this start found definitions or whole queues lost: what is left of them is in
        quarantine."""
        return self.lacks_definitions or self.begun_anew > 0

    def start(self) -> None:
        """The loop runs: timers of what was recovered begin."""
        self.bodies.finish_recovery()
        self._started = True
        if self._journal is not None:
            self._compaction = JournalCompaction(self._persister, self._journal, living_entries)
        self.slices.start()
        self._unbinding.start(lacks_definitions=self.lacks_definitions)
        for queue in self.queues.values():
            self._start_timers(queue)
        for feature in self._features:
            feature.vhost_started(self)

    def close(self) -> None:
        """Clean stop: what the queues know is made exact on disk."""
        for queue in self.queues.values():
            queue.close()
        self.bodies.clean_up()

    def closed(self) -> None:
        """Clean stop, after the persister's last round."""
        self.bodies.close(True)

    def delete(self) -> Iterator[None]:
        """The vhost was deleted: the files of its queues are removed, and what is in it is freed,
        one queue or exchange a step."""
        if self._compaction is not None:
            self._compaction.end()
        for queue in Through(self.queues.values()):
            if not queue.deleted:
                self._topology.changed()
                self._forget_queue(queue)
            yield
        for exchange in Through(self.exchanges.values()):
            yield from self._bindings.drop_from(exchange)
            for feature in self._features:
                feature.exchange_deleted(self, exchange)
            yield
        self.bodies.delete()
        yield from self.bodies.remove_files()
        self._topology.changed()
        # 100,000 that go with the vhost itself would take 40 ms of one turn.
        while self.exchanges:
            self.exchanges.popitem()
            yield

    def drop_journal(self) -> None:
        """After `delete` and the round behind it: the journal's file is closed and goes. The empty
        directories go with the next start."""
        if self._journal is not None:
            journal, self._journal = self._journal, None
            journal.delete()

    def _snapshot(self) -> Iterator[bytes]:
        return snapshot(self.exchanges.values(), self.queues.values(), self._bindings)

    # -- policies ----------------------------------------------------------------------------------

    def apply_policies(self) -> Iterator[None]:
        """Brings the policies of now to every exchange and queue that there is, one a step. What
        is declared meanwhile has them from its declaration."""
        for problem in self._policies.to_all():
            if problem:
                log.error("%s", problem)
            yield

    # -- tracing -----------------------------------------------------------------------------------

    @property
    def tracing(self) -> bool:
        """Whether the firehose is on."""
        return self.tracer.on

    def _publish_traced(self, key: str, found: dict[str, Any], body: bytes) -> None:
        exchange = self.exchanges.get(TRACE_EXCHANGE)
        # A vhost that is deleted has none any more.
        queues = self.routes.route(exchange, [key], {}) if exchange is not None else ()
        if queues:
            listed = properties.encode(found)
            for queue in queues:
                queue.put(octets(TRACE_EXCHANGE), octets(key), listed, body, False)

    # -- publishing --------------------------------------------------------------------------------

    def publish(
        self,
        exchange: BoundExchange,
        keys: list[str],
        found: dict[str, Any],
        body: bytes,
        queues: Sequence[Any] | None = None,
        who: tuple[str, str] = ("", ""),
    ) -> Published:
        """All steps of `publishing` at once."""
        steps = self.publishing(exchange, keys, found, body, queues, who)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                published: Published = end.value
                return published

    def publishing(
        self,
        exchange: BoundExchange,
        keys: list[str],
        found: dict[str, Any],
        body: bytes,
        queues: Sequence[Any] | Reached | None = None,
        who: tuple[str, str] = ("", ""),
    ) -> Generator[Pause | None, None, Published]:
        """Publishes a message that comes over no channel, in short steps: it may go to very many
        queues. One that is deleted between the steps does not get it.

        `keys` are its routing key and those of CC and BCC, `found` its properties by name, both as
        checked; `queues` are those it goes to, where that is known already;
        `who` is the user and the connection that the history names.
        """
        headers = found.get("headers", {})
        listed = properties.encode(found)
        if "BCC" in headers and not exchange.holds(headers):
            kept = {name: value for name, value in headers.items() if name != "BCC"}
            listed = properties.encode({**found, "headers": kept})
        if queues is None:
            queues = yield from self.routes.publishing(exchange, keys, found, listed)
        persistent = found.get("delivery_mode") == 2
        parts = (octets(exchange.name), octets(keys[0]), listed, body, persistent)
        taken, refused = yield from self._put_into_each(queues, parts)
        if refused and exchange.duplicates is not None:
            exchange.duplicates.forget(listed)
        if self.recorder.on:
            answer = REJECTED if refused else STORED
            self.recorder.begin(*who).keep(exchange, *parts[:4], tuple(queues), answer)
        exchange.publish_in += 1
        exchange.bytes_in += len(body)
        if not queues:
            exchange.dropped += 1
            exchange.bytes_dropped += len(body)
            return Published(0, 0)
        exchange.publish_out += 1
        exchange.bytes_out += len(body)
        if refused:
            exchange.refused += 1
            exchange.bytes_refused += len(body)
        return Published(taken + refused, taken)

    def _put_into_each(
        self, queues: Sequence[Any] | Reached, parts: tuple[bytes, bytes, bytes, bytes, bool]
    ) -> Generator[Pause | None, None, tuple[int, int]]:
        """How many queues took a message, and how many refused it. Its `parts`: exchange, routing
        key, properties, body, and whether it is persistent."""
        taken = refused = 0
        reference = None
        if len(queues) > 1 and len(parts[3]) >= self.bodies.embed_below:
            reference = self.bodies.share_bytes(parts[3])
        try:
            for number, queue in enumerate(queues, 1):
                if number % QUEUES_A_STEP == 0:
                    yield None
                    while self._persister.under_pressure:
                        # One message may be more than unwritten ones may take together.
                        yield UNTIL_WRITTEN
                if not getattr(queue, "deleted", False):
                    answer = queue.put(*parts, reference)
                    taken += answer != REJECTED
                    refused += answer == REJECTED
        finally:
            if reference is not None:
                self.bodies.release_bytes(reference)
        return taken, refused
