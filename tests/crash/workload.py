"""A random script against a broker in this process, with what it asked and was answered.

Queues: `plain`; `levels` with four priorities; `reject`, whose messages go to `graves` when they
are rejected; `short`, which keeps three messages and sends the rest to `graves`; `late`, which an
exchange feeds that holds messages back; and some that come and go.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

from broker.store import disk
from broker.wire import properties
from tests.crash.inside import Inside
from tests.crash.promises import Copy, Declared, Promises
from tests.store.driven import Taker

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "levels": {"x-max-priority": 3},
    "graves": {},
    "reject": DEAD,
    "short": {**DEAD, "x-max-length": 3},
    "late": {},
}
DELAY_MS = 1
SHORT_LENGTH = 3


class Workload:
    """One recording of `steps` random steps in `directory`, which must not exist."""

    def __init__(self, directory: Path, seed: int, steps: int) -> None:
        self.root = str(directory)
        self.chance = random.Random(seed)
        self.promises = Promises()
        self.segment_size = self.chance.choice((2048, 4096, 65536))
        self.longest = 200 if self.segment_size < 65536 else 4000
        self.numbers = 0
        self.ready: dict[str, list[Copy]] = defaultdict(list)
        """What a queue holds in its order, as far as the script knows."""
        self.taken: dict[str, list[tuple[Taker, Copy]]] = defaultdict(list)
        self.settled: list[Copy] = []
        """Acknowledged, and not yet known to be on disk."""
        self.ended: list[Declared] = []
        self.directories: dict[str, str] = {}
        """Queue -> name of its directory."""
        disk.record(True, True)
        try:
            self.inside = Inside(directory, self.segment_size).start()
            self._prepare()
            for _ in range(steps):
                self._step()
            self._tick()
            self.directories = {
                name: f"{queue.incarnation:016x}"
                for name, queue in self.inside.vhost.queues.items()
            }
            self.inside.kill()
            self.events = disk.recorded()
            self.data = disk.recorded_bytes()
        finally:
            disk.record(False)
        self.began = self.prepared

    def _now(self) -> int:
        return disk.recorded_count()

    def _prepare(self) -> None:
        vhost = self.inside.vhost
        for name, arguments in QUEUES.items():
            self.promises.queues[name] = Declared(self._now())
            vhost.declare_queue(name, durable=True, arguments=arguments)
        vhost.declare_exchange(
            "later",
            "x-delayed-message",
            durable=True,
            arguments={"x-delayed-type": "fanout"},
        )
        vhost.bind("later", "late", "queue", "")
        self.inside.sync()
        self.prepared = self._now()
        for queue in self.promises.queues.values():
            queue.promised = self.prepared

    def _step(self) -> None:
        steps = (
            (self._publish, 10),
            (self._publish_late, 1),
            (self._ring, 1),
            (self._take, 6),
            (self._settle, 5),
            (self._settle_all, 1),
            (self._requeue, 1),
            (self._purge, 1),
            (self._sync, 4),
            (self._tick, 2),
            (self._come_and_go, 1),
            (self._rest, 1),
            (self._restart, 1),
        )
        (step,) = self.chance.choices([each[0] for each in steps], [each[1] for each in steps])
        step()
        self.inside.turns()

    # -- publishing --------------------------------------------------------------------------------

    def _body(self) -> bytes:
        self.numbers += 1
        length = self.chance.choice((20, 40, 100, self.longest))
        return b"message %06d " % self.numbers + self.chance.randbytes(length)

    def _confirm_later(self, copies: list[Copy]) -> None:
        def told() -> None:
            moment = self._now()
            for copy in copies:
                copy.confirmed = min(copy.confirmed, moment)

        self.inside.persister.after_round(told)

    def _publish(self) -> None:
        copies = []
        queue = self.chance.choice(("plain", "plain", "levels", "reject", "short"))
        for _ in range(self.chance.choice((1, 1, 3, 12))):
            body = self._body()
            level = self.chance.randrange(4) if queue == "levels" else 0
            copy = Copy(self.numbers, body, [(self._now(), queue)], level)
            told: dict[str, Any] = {"delivery_mode": 2}
            if queue == "levels":
                told["priority"] = level
            self.promises.add(copy)
            copies.append(copy)
            if queue == "levels":
                self._insert(copy)
            else:
                self.ready[queue].append(copy)
            if queue == "short" and len(self.ready[queue]) > SHORT_LENGTH:
                self._dies(self.ready[queue].pop(0))
            self.inside.vhost.publish("", queue, properties.encode(told), body)
        self._confirm_later(copies)

    def _insert(self, copy: Copy) -> None:
        """By level, and by number within it."""
        queue = self.ready["levels"]
        queue.append(copy)
        queue.sort(key=lambda each: (-each.level, each.number))

    def _publish_late(self) -> None:
        body = self._body()
        copy = self.promises.add(Copy(self.numbers, body, [(self._now(), "late")], is_held=True))
        told = {"delivery_mode": 2, "headers": {"x-delay": DELAY_MS}}
        self.inside.vhost.publish("later", "", properties.encode(told), body)
        self._confirm_later([copy])

    def _ring(self) -> None:
        self.inside.ring()

    def _dies(self, copy: Copy) -> None:
        """From now on it may be among the dead letters, and no more where it was, once that is
        settled there; at no time is it in neither."""
        copy.homes.append((self._now(), "graves"))

    # -- consuming ---------------------------------------------------------------------------------

    def _take(self) -> None:
        queue = self.chance.choice(("plain", "plain", "levels", "reject"))
        for _ in range(self.chance.choice((1, 4, 16))):
            taker = self.inside.take(self.inside.vhost.queues[queue])
            moment = self._now()
            if taker.body is None:
                break
            copy = self.ready[queue].pop(0)
            assert copy.body == taker.body, f"{queue} gave {taker.body[:30]!r} for {copy}"
            copy.taken = min(copy.taken, moment)
            self.taken[queue].append((taker, copy))

    def _settle(self) -> None:
        queue = self.chance.choice(("plain", "plain", "levels", "reject"))
        for _ in range(self.chance.choice((1, 3, 10))):
            if not self.taken[queue]:
                return
            at = self.chance.randrange(len(self.taken[queue]))
            self._end(queue, *self.taken[queue].pop(at))

    def _settle_all(self) -> None:
        for queue, taken in self.taken.items():
            while taken:
                self._end(queue, *taken.pop(0))

    def _end(self, queue: str, taker: Taker, copy: Copy) -> None:
        store = self.inside.vhost.queues[queue]
        if queue == "reject" and self.chance.random() < 0.7:
            self._dies(copy)
            store.settle_place(taker.place, False)
            return
        copy.forgotten = self._now()
        self.settled.append(copy)
        store.settle_place(taker.place)

    def _requeue(self) -> None:
        for queue, taken in self.taken.items():
            for taker, copy in taken:
                self.inside.vhost.queues[queue].requeue_place(taker.place)
                self.ready[queue].append(copy)
            self.ready[queue].sort(key=lambda each: (-each.level, each.number))
            taken.clear()

    def _purge(self) -> None:
        queue = self.chance.choice(("plain", "levels"))
        moment = self._now()
        purged, self.ready[queue] = self.ready[queue], []
        for copy in purged:
            copy.forgotten = moment
        count = self.inside.vhost.queues[queue].purge()
        assert count == len(purged)
        self._gone_with_round(purged)

    def _gone_with_round(self, copies: list[Copy]) -> None:
        """A purge is answered when it is written; it is on disk with the next tick."""
        self.settled += copies

    # -- the clock and the rest --------------------------------------------------------------------

    def _sync(self) -> None:
        self.inside.sync()

    def _tick(self) -> None:
        settled, self.settled = self.settled, []
        ended, self.ended = self.ended, []
        self.inside.tick()
        self.inside.sync()
        moment = self._now()
        for copy in settled:
            copy.gone = moment
        for queue in ended:
            queue.ended = moment

    def _come_and_go(self) -> None:
        """A queue comes with two messages, or the one of before goes."""
        name = "passing"
        known = self.promises.queues.get(name)
        vhost = self.inside.vhost
        if known is not None and known.unasked > self._now():
            known.unasked = self._now()
            for copy in self.ready.pop(name):
                copy.forgotten = self._now()
                self.settled.append(copy)
            vhost.delete_queue(name)
            self.ended.append(known)
            return
        if known is not None and known.ended > self._now():
            return
        self.promises.queues[name] = declared = Declared(self._now())
        vhost.declare_queue(name, durable=True)
        copies = []
        for _ in range(2):
            body = self._body()
            copies.append(self.promises.add(Copy(self.numbers, body, [(self._now(), name)])))
            vhost.publish("", name, properties.encode({"delivery_mode": 2}), body)
        self.ready[name] = list(copies)
        self._confirm_later(copies)

        def promised() -> None:
            declared.promised = self._now()

        self.inside.persister.after_round(promised)

    def _rest(self) -> None:
        for queue in self.inside.vhost.queues.values():
            queue.rest_if_idle(0.0, 0.0)
            queue.rest_if_idle(1.0, 0.0)

    def _restart(self) -> None:
        """A kill, or a clean stop, and another start: recovery is recorded too."""
        self._tick()
        if self.chance.random() < 0.7:
            self.inside.kill()
        else:
            self.inside.stop()
        for queue, taken in self.taken.items():
            self.ready[queue] += [copy for _, copy in taken]
            self.ready[queue].sort(key=lambda each: (-each.level, each.number))
            taken.clear()
        self.inside = Inside(Path(self.root), self.segment_size).start()
        assert not self.inside.problems, self.inside.problems
