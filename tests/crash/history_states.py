"""The states that a power cut can leave of a history, its index and its tier: a recording of a
broker that publishes, indexes, compacts and uploads, and what a start on each state finds again.

`python -m tests.crash.history_states --states 2000`. What is promised: a confirmed message has its
record, the record is found by each of its keys, whether its segment is on this disk or in the
object store, and nothing is found that was not published.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.features.history.feature import Histories
from broker.fields import properties
from broker.schema.message_history import EVENT, HISTORY
from broker.vhosts.policies import Policy
from tests.crash.explore import scratch
from tests.crash.inside import publish
from tests.crash.promises import NEVER
from tests.crash.states import CrashDisk, State, lay_out
from tests.store import recorder
from tests.tiers.indexed import Indexed
from tests.tiers.rig import FIRST

QUEUE = "orders"
POLICIES = (
    Policy("/", "audit", f"^{QUEUE}$", {
        "history": "headers", "history-keys": "message_id, header:shared", "history-events": True,
    }),
    Policy("/", "cold", rf"^{HISTORY}$".replace(".", r"\."), {
        "stream-tier": True, "stream-local-max-bytes": 0,
    }),
)  # fmt: skip
ITEMS = 48
"""Of one file of the index: a few messages fill it."""
SHARED = 5
PROPERTIES = 4
"""Place of a row's properties."""


class Recording(Indexed):
    """A broker whose queue has a history that is indexed and leaves this disk."""

    def __init__(self, directory: Path, store: Path) -> None:
        super().__init__(directory, store, stream_index_items=ITEMS)
        self.features.append(Histories(self))

    def start(self) -> Recording:
        super().start()
        return self

    @property
    def stream(self) -> Any:
        return self.vhost.queues[HISTORY]

    def prepare(self) -> None:
        """The queue and its policies, on disk."""
        self.vhost.declare_queue(QUEUE, durable=True)
        for policy in POLICIES:
            self.policies.put(policy)
        for _ in self.vhost.apply_policies():
            pass
        self.sync()
        self.connect()

    def publish_one(self, number: int) -> None:
        listed = properties.encode(
            {
                "delivery_mode": 2,
                "message_id": str(number),
                "headers": {"shared": number % SHARED, "filler": "x" * 200},
            }
        )
        assert publish(self.vhost, "", QUEUE, listed, b"%d" % number)

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        """(offset, properties) of all records and events, here and in the store."""
        told: list[list[Any]] = []
        self.stream.browse(FIRST, 1 << 30, 1 << 40, told.append)
        self.until(lambda: bool(told))
        return [(row[0], properties.decode(row[PROPERTIES])) for row in told[0]]


@dataclass
class Recorded:
    """A recording below `base`: what was done, and what was promised from which moment on."""

    base: Path
    rounds: int
    seed: int
    asked: dict[int, int] = field(default_factory=dict)
    confirmed: dict[int, int] = field(default_factory=dict)
    stores: list[tuple[int, Path]] = field(default_factory=list)
    """The object store at some moments: what it holds is safe."""

    def __post_init__(self) -> None:
        self.root = str(self.base / "data")
        self.chance = random.Random(self.seed)
        self.began = 0
        recorder.record(True, True)
        broker = Recording(Path(self.root), self.base / "store")
        try:
            broker.start()
            broker.prepare()
            self.began = recorder.recorded_count()
            self.history = f"queues/{broker.stream.incarnation:016x}"
            for _ in range(self.rounds):
                self._round(broker)
        finally:
            broker.kill()
            self.events = recorder.recorded()
            self.data = recorder.recorded_bytes()
            recorder.record(False)

    def _round(self, broker: Recording) -> None:
        for _ in range(self.chance.choice((1, 3, 9))):
            number = len(self.asked)
            self.asked[number] = recorder.recorded_count()
            broker.publish_one(number)
        broker.sync()
        for number in self.asked:
            self.confirmed.setdefault(number, recorder.recorded_count())
        for _ in range(self.chance.choice((0, 0, 2))):
            taken = broker.take(broker.vhost.queues[QUEUE])
            if taken.body is not None:
                broker.vhost.queues[QUEUE].settle_place(taken.place)
        broker.second()
        copy = self.base / f"store-{len(self.stores)}"
        _linked(broker.store.parent, copy)
        self.stores.append((recorder.recorded_count(), copy))

    def states(self, chance: random.Random) -> Iterator[tuple[int, str, State]]:
        """Every (moment, what makes the state, state) behind the preparations."""
        disk = CrashDisk(self.root)
        for moment, (event, data) in enumerate(zip(self.events, self.data, strict=True), 1):
            disk.take(event, data)
            if moment >= self.began and event[0] != "read":
                for label, state in disk.states(chance, samples=1):
                    yield moment, label, state

    def store_at(self, moment: int) -> Path:
        """The first copy of the object store that is not older than a moment."""
        return next((path for noted, path in self.stores if noted >= moment), self.stores[-1][1])

    def wrong(self, moment: int, state: State, target: Path) -> list[str]:
        """What a start on a state gets wrong."""
        lay_out(state, self.root, target)
        store = target.with_name("store-of-state")
        _linked(self.store_at(moment), store)
        broker = Recording(target, store).start()
        try:
            broker.connect()
            broker.catch_up()
            return self._judged(moment, broker)
        finally:
            broker.kill()
            shutil.rmtree(target)
            shutil.rmtree(store)

    def _judged(self, moment: int, broker: Recording) -> list[str]:
        ids: dict[str, list[int]] = {}
        shared: dict[int, list[int]] = {}
        for offset, listed in broker.rows():
            if EVENT not in listed["headers"]:
                ids.setdefault(listed["message_id"], []).append(offset)
                shared.setdefault(listed["headers"]["shared"], []).append(offset)
        wrong = [
            f"{number} was confirmed and has {len(ids.get(str(number), ()))} records"
            for number in self.asked
            if self.confirmed.get(number, NEVER) <= moment and len(ids.get(str(number), ())) != 1
        ]
        known = {str(number) for number, asked in self.asked.items() if asked <= moment}
        wrong += [f"a record of {name} that was not published" for name in ids.keys() - known]
        newest = max(ids, key=int, default="absent")
        wanted: list[tuple[str, Any, list[int]]] = [("message_id", newest, ids.get(newest, []))]
        wanted += [("header:shared", value, shared.get(value, [])) for value in range(SHARED)]
        for name, value, offsets in wanted:
            found = broker.offsets_of(value, name=name)
            if sorted(found) != offsets:
                wrong.append(f"{name}={value} is at {offsets}, and was found at {sorted(found)}")
        return wrong


def _linked(store: Path, copy: Path) -> None:
    """An object is never written again, and a link of it has its ETag."""
    shutil.copytree(store, copy, copy_function=os.link)


def explore(rounds: int, wanted: int, seed: int) -> tuple[int, list[str]]:
    """Starts on about `wanted` states of one recording; how many there were, and what was wrong."""
    log = logging.getLogger("leveret")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    base = scratch()
    told: list[str] = []
    count = 0
    try:
        recorded = Recorded(base, rounds, seed)
        total = sum(1 for _ in recorded.states(random.Random(seed)))
        stride = max(1, total // wanted)
        for number, (moment, label, state) in enumerate(recorded.states(random.Random(seed))):
            if number % stride:
                continue
            count += 1
            try:
                wrong = recorded.wrong(moment, state, base / "state")
            except Exception as error:
                wrong = [f"no start: {type(error).__name__}: {error}"]
                shutil.rmtree(base / "state", ignore_errors=True)
                shutil.rmtree(base / "store-of-state", ignore_errors=True)
            event = recorded.events[moment - 1]
            where = f"seed {seed}, moment {moment} ({event[0]} {event[1]}), {label}"
            told += [f"{where}: {each}" for each in wrong[:3]]
    finally:
        log.setLevel(level)
        shutil.rmtree(base, ignore_errors=True)
    return count, told


def main() -> int:
    """Exit status 1 if a state was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.history_states")
    parser.add_argument("--states", type=int, default=500, help="states to start on (500)")
    parser.add_argument("--rounds", type=int, default=40, help="of one recording (40)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seed, count, faults = options.seed, 0, 0
    began = time.monotonic()
    while count < options.states:
        more, told = explore(options.rounds, min(250, options.states - count), seed)
        count += more
        faults += len(told)
        for each in told:
            print(each)
        print(f"seed {seed}: {count} states, {faults} faults, {time.monotonic() - began:.0f} s")
        sys.stdout.flush()
        seed += 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
