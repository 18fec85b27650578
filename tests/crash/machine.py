"""The store against plain lists: any order of what clients and the clock can do to durable queues,
in this process, with stops and kills in between.

Each rule does the same to a broker and to lists of entries. What was not synced when the broker is
killed may be there or not afterwards: such an entry is `unsure`, and the first look at it decides.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker.fields import properties
from tests.crash.explore import miscounted, scratch, strays
from tests.crash.inside import Inside, publish
from tests.crash.profiles import Profile, shrunk, small_bodies
from tests.store.driven import Taker

QUEUES: dict[str, dict[str, Any]] = {"one": {}, "two": {}, "levels": {"x-max-priority": 3}}
SEGMENT_SIZE = 2048
SIZES = st.sampled_from([0, 20, 80, 120, 400, 900, 1700])
queues = st.sampled_from(sorted(QUEUES))
levels = st.integers(0, 3)
counts = st.sampled_from([1, 2, 3, 8])


@dataclass(eq=False)
class Entry:
    """A message in one queue. `synced`: it is on disk; `ends`: its time to
    live is 0; `unsure`: a kill decided whether it is there, and nobody looked yet."""

    body: bytes
    place: int
    level: int
    persistent: bool
    ends: bool
    synced: bool = False
    delivered: bool = False
    unsure: bool = False


@dataclass
class Model:
    """One queue: what is ready, what was taken, and what was settled but may come back."""

    ready: list[Entry] = field(default_factory=list)
    taken: list[tuple[Taker, Entry]] = field(default_factory=list)
    settled: list[Entry] = field(default_factory=list)

    def sort(self) -> None:
        """Higher levels first, in each the order of publishing."""
        self.ready.sort(key=lambda entry: (-entry.level, entry.place))

    @property
    def is_exact(self) -> bool:
        """Whether it is known how many there are."""
        return not any(entry.unsure or entry.ends for entry in self.ready)

    def killed(self, clean: bool) -> None:
        """The broker ended. What was taken comes back; without a clean stop all that was not synced
        is unsure. Messages that are not persistent survive too, from a tick on."""
        for _, entry in self.taken:
            entry.delivered = True
            self.ready.append(entry)
        self.taken.clear()
        for entry in self.ready:
            entry.unsure = entry.unsure or not (entry.synced or clean)
        if not clean:
            for entry in self.settled:
                entry.unsure = True
                self.ready.append(entry)
        self.settled.clear()
        self.sort()


class StoreMachine(RuleBasedStateMachine):
    """Several queues of one broker, below its server."""

    backend = "ram"

    def __init__(self) -> None:
        super().__init__()
        self.base = scratch()
        self.small = shrunk()
        self.small.__enter__()
        self.profile = Profile("machine", bodies=small_bodies(self.backend), open_files=8)
        self.models = {name: Model() for name in QUEUES}
        self.places = 0
        self._start()
        vhost = self.inside.vhost
        vhost.declare_exchange("fan", "fanout", durable=True)
        for name, arguments in QUEUES.items():
            vhost.declare_queue(name, durable=True, arguments=arguments)
            vhost.bind("fan", name, "queue", "")
        self._tick()

    def _start(self) -> None:
        self.inside = Inside(self.base / "data", SEGMENT_SIZE, self.profile).start()
        assert self.inside.problems == []

    def teardown(self) -> None:
        try:
            self.inside.turns()
            self._tick()
            self._end(clean=False)
            for name in QUEUES:
                self.take(name, 1 << 30)
                assert not self.models[name].ready, f"{name}: {self._told(name)}"
            assert miscounted(self.inside) == ""
        finally:
            self.inside.kill()
            self.small.__exit__(None, None, None)
            shutil.rmtree(self.base)

    # -- publishing --------------------------------------------------------------------------------

    def _entry(self, name: str, size: int, level: int, persistent: bool, ends: bool) -> Entry:
        body = b"%06d " % self.places + bytes([self.places % 251]) * size
        entry = Entry(body, self.places, level if name == "levels" else 0, persistent, ends)
        self.models[name].ready.append(entry)
        self.models[name].sort()
        return entry

    def _publish(
        self, names: Iterable[str], size: int, level: int, persistent: bool, ends: bool
    ) -> None:
        told: dict[str, Any] = {"delivery_mode": 1 + persistent, "priority": level}
        if ends:
            told["expiration"] = "0"
        self.places += 1
        for name in names:
            body = self._entry(name, size, level, persistent, ends).body
        exchange, key = ("", name) if len(list(names)) == 1 else ("fan", "")
        publish(self.inside.vhost, exchange, key, properties.encode(told), body)

    @rule(name=queues, size=SIZES, level=levels, persistent=st.booleans(), count=counts)
    def publish(self, name: str, size: int, level: int, persistent: bool, count: int) -> None:
        for _ in range(count):
            self._publish((name,), size, level, persistent, False)
        self.inside.turns()

    @rule(size=SIZES, level=levels, persistent=st.booleans(), count=counts)
    def publish_to_all(self, size: int, level: int, persistent: bool, count: int) -> None:
        for _ in range(count):
            self._publish(QUEUES, size, level, persistent, False)
        self.inside.turns()

    @rule(name=queues, size=SIZES, level=levels, to_all=st.booleans())
    def publish_what_ends(self, name: str, size: int, level: int, to_all: bool) -> None:
        """Its time to live is over at once: nobody ever gets it."""
        self._publish(QUEUES if to_all else (name,), size, level, True, True)
        self.inside.turns()

    # -- consuming ---------------------------------------------------------------------------------

    @rule(name=queues, count=st.sampled_from([1, 1, 2, 3, 5, 50]))
    def take(self, name: str, count: int) -> None:
        model = self.models[name]
        for _ in range(count):
            taker = self.inside.take(self.inside.vhost.queues[name])
            while model.ready and (
                model.ready[0].ends or (model.ready[0].unsure and model.ready[0].body != taker.body)
            ):
                gone = model.ready.pop(0)
                if gone.ends and not gone.unsure:
                    model.settled.append(gone)
            if taker.body is None:
                assert not model.ready, f"{name} gave none, but {self._told(name)}"
                return
            assert model.ready, f"{name} gave {taker.body[:10]!r}, which it should not have"
            entry = model.ready.pop(0)
            assert taker.body == entry.body
            assert taker.redelivered or not entry.delivered
            entry.unsure = False
            entry.delivered = True
            model.taken.append((taker, entry))

    def _told(self, name: str) -> str:
        """What is ready by the model, and what the broker says of the queue and its bodies."""
        queue = self.inside.vhost.queues[name]
        entries = self.models[name].ready
        return (
            f"{[(entry, len(entry.body)) for entry in entries[:5]]} of {len(entries)} are ready; "
            f"the queue has {queue.messages_ready} ready, "
            f"{queue.messages_unacknowledged} taken; {self.inside.vhost.bodies.figures()}, "
            f"{self.inside.persister.quarantine.count} in quarantine, problems "
            f"{self.inside.problems}, threads of this process "
            f"{sorted(thread.name for thread in threading.enumerate())}"
        )

    @rule(name=queues, every=st.integers(1, 4), requeues=st.booleans())
    def settle(self, name: str, every: int, requeues: bool) -> None:
        """Acknowledges or gives back every so many of those that were taken."""
        model = self.models[name]
        queue = self.inside.vhost.queues[name]
        chosen = model.taken[::every]
        model.taken = [each for each in model.taken if each not in chosen]
        for taker, entry in chosen:
            if requeues:
                queue.requeue_place(taker.place)
                model.ready.append(entry)
            else:
                queue.settle_place(taker.place)
                model.settled.append(entry)
        model.sort()
        self.inside.turns()

    @rule(keeps=st.sampled_from([2, 4, 1 << 30]))
    def thin_out(self, keeps: int) -> None:
        """Takes and acknowledges nearly all that there is, so that bodies die."""
        for name in QUEUES:
            self.take(name, 1 << 30)
            model = self.models[name]
            kept, gone = model.taken[::keeps], model.taken
            model.taken = kept
            for taker, entry in gone:
                if (taker, entry) not in kept:
                    self.inside.vhost.queues[name].settle_place(taker.place)
                    model.settled.append(entry)
        self._tick()
        self.inside.collect()

    @rule(name=queues)
    def purge(self, name: str) -> None:
        model = self.models[name]
        exact = model.is_exact
        count = self.inside.vhost.queues[name].purge()
        assert count <= len(model.ready)
        assert not exact or count == len(model.ready)
        model.settled += model.ready
        model.ready = []
        self.inside.turns()

    @rule(name=queues)
    def delete_and_declare(self, name: str) -> None:
        """Another queue of that name: nothing of the old one ever comes back."""
        vhost = self.inside.vhost
        vhost.delete_queue(name)
        vhost.declare_queue(name, durable=True, arguments=QUEUES[name])
        vhost.bind("fan", name, "queue", "")
        self.models[name] = Model()
        self.inside.sync()
        self._synced(acks=False)

    # -- the disk ----------------------------------------------------------------------------------

    def _synced(self, acks: bool) -> None:
        for model in self.models.values():
            for entry in model.ready + [entry for _, entry in model.taken]:
                entry.synced = entry.synced or entry.persistent or acks
            if acks:
                model.settled.clear()

    def sync(self) -> None:
        """A round."""
        self.inside.sync()
        self._synced(acks=False)

    def _tick(self) -> None:
        self.inside.tick()
        self.inside.sync()
        self._synced(acks=True)

    def tick(self) -> None:
        """All is on disk; what is counted and what lies there is looked at."""
        self._tick()
        assert miscounted(self.inside) == ""
        assert list(strays(self.base / "data")) == []

    def rest(self) -> None:
        """Every queue gives back what it does not need."""
        for queue in self.inside.vhost.queues.values():
            queue.rest_if_idle(0.0, 0.0)
            queue.rest_if_idle(1.0, 0.0)

    @rule(what=st.sampled_from(["sync", "tick", "rest"]))
    def keep_house(self, what: str) -> None:
        getattr(self, what)()

    @precondition(lambda self: self.places)
    @rule(clean=st.booleans(), first=st.sampled_from(["nothing", "sync", "tick"]))
    def restart(self, clean: bool, first: str) -> None:
        if first == "sync":
            self.sync()
        elif first == "tick":
            self._tick()
        self._end(clean)

    def _end(self, clean: bool) -> None:
        self.inside.stop() if clean else self.inside.kill()
        for model in self.models.values():
            model.killed(clean)
        self._start()

    @invariant()
    def counts_are_the_same(self) -> None:
        for name, model in self.models.items():
            queue = self.inside.vhost.queues[name]
            if model.is_exact:
                assert queue.messages_ready == len(model.ready), name
            assert queue.messages_unacknowledged == len(model.taken), name


def run(backend: str, examples: int, steps: int = 40) -> None:
    """Plays so many games. Raises AssertionError with the steps that lead to a difference."""
    log = logging.getLogger("leveret")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    machine = type("Machine", (StoreMachine,), {"backend": backend})
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                database=None,
                deadline=None,  # a busy machine is no fault
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        log.setLevel(level)
