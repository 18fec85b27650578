"""A random script against a broker in this process, with what it asked and was answered.

Queues: `plain`; `levels` with four priorities; `reject`, whose messages go to `graves` when they
are rejected; `short`, which keeps three messages and sends the rest to `graves`; `late`, which an
exchange feeds that holds messages back; `stream`; and some that come and go. An exchange `fan` has
`plain`, `levels` and `reject`: large bodies are shared there. What is done how often depends on
the kind of workload (`tests.crash.profiles`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.fields import properties
from tests.crash.inside import Inside, publish
from tests.crash.profiles import PROFILES, Profile
from tests.crash.promises import Copy, Declared, Promises
from tests.crash.stream_script import ARGUMENTS, NAME, StreamScript
from tests.crash.tours import FANNED, TOURS
from tests.store import recorder
from tests.store.driven import Taker

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "levels": {"x-max-priority": 3},
    "graves": {},
    "reject": DEAD,
    "short": {**DEAD, "x-max-length": 3},
    "late": {},
    NAME: ARGUMENTS,
}
FANNED_SIZES = (90, 120, 400, 900, 1700)
STEPS = {
    "publish": 10,
    "publish_fan": 1,
    "publish_stream": 1,
    "keep_place": 0,
    "purge_stream": 0,
    "publish_late": 1,
    "ring": 1,
    "take": 6,
    "settle": 5,
    "settle_all": 1,
    "requeue": 1,
    "purge": 1,
    "sync": 4,
    "tick": 2,
    "collect": 0,
    "come_and_go": 1,
    "rest": 1,
    "restart": 1,
}
"""How often each step is taken, if the profile says nothing else."""
DELAY_MS = 1
LATE = properties.encode({"delivery_mode": 2, "headers": {"x-delay": DELAY_MS}})
SHORT_LENGTH = 3


class Workload:
    """One recording of `steps` random steps in `directory`, which must not exist."""

    def __init__(
        self, directory: Path, seed: int, steps: int, profile: Profile = PROFILES["queues"]
    ) -> None:
        self.root = str(directory)
        self.profile = profile
        self.chance = random.Random(seed)
        self.promises = Promises()
        self.segment_size = profile.segment_size(self.chance)
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
        self.saved: list[tuple[int, dict[str, bytes]]] = []
        """Moment at which a clean stop began -> files of the index in LevelDB that it left: their
        writing is not recorded, and a sync of the file system goes before the marker."""
        self.stream = StreamScript(self.chance, self.moment, self._after_round)
        self.promises.stream = self.stream.promises
        recorder.record(True, True)
        try:
            self.inside = Inside(directory, self.segment_size, profile).start()
            self._prepare()
            for tour in profile.tours:
                TOURS[tour](self)
            for _ in range(steps):
                self._step()
            self.tick()
            self.directories = {
                name: f"{queue.incarnation:016x}"
                for name, queue in self.inside.vhost.queues.items()
            }
            self.inside.kill()
            self.events = recorder.recorded()
            self.data = recorder.recorded_bytes()
            self.overlaps = recorder.overlapping()
        except BaseException:
            # Its threads must not go on with what is forgotten.
            self.inside.kill()
            raise
        finally:
            recorder.record(False)
        self.began = self.prepared

    def moment(self) -> int:
        return recorder.recorded_count()

    def _after_round(self, told: Callable[[], None]) -> None:
        self.inside.persister.after_round(told)

    def _prepare(self) -> None:
        vhost = self.inside.vhost
        for name, arguments in QUEUES.items():
            self.promises.queues[name] = Declared(self.moment())
            vhost.declare_queue(name, durable=True, arguments=arguments)
        vhost.declare_exchange(
            "later",
            "x-delayed-message",
            durable=True,
            arguments={"x-delayed-type": "fanout"},
        )
        vhost.bind("later", "late", "queue", "")
        vhost.declare_exchange("fan", "fanout", durable=True)
        for name in FANNED:
            vhost.bind("fan", name, "queue", "")
        self.inside.make_runs_short()
        self.inside.sync()
        self.prepared = self.moment()
        for queue in self.promises.queues.values():
            queue.promised = self.prepared

    def _step(self) -> None:
        weights = {**STEPS, **self.profile.weights}
        (step,) = self.chance.choices(list(weights), list(weights.values()))
        steps = {"tick": self.tick, "publish_late": self.publish_late}
        steps[step]() if step in steps else getattr(self, f"_{step}")()
        self.inside.turns()

    # -- publishing --------------------------------------------------------------------------------

    def _body(self) -> bytes:
        return self.next_body(self.chance.choice((20, 40, 100, self.longest)))

    def next_body(self, length: int) -> bytes:
        """A body that no other message has."""
        self.numbers += 1
        return b"message %06d " % self.numbers + self.chance.randbytes(length)

    def confirm_later(self, copies: list[Copy]) -> None:
        def told() -> None:
            moment = self.moment()
            for copy in copies:
                copy.confirmed = min(copy.confirmed, moment)

        self.inside.persister.after_round(told)

    def _publish(self) -> None:
        copies = []
        queue = self.chance.choice(("plain", "plain", "levels", "reject", "short"))
        for _ in range(self.chance.choice((1, 1, 3, 12))):
            body = self._body()
            level = self.chance.randrange(4) if queue == "levels" else 0
            copy = Copy(self.numbers, body, [(self.moment(), queue)], level)
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
            publish(self.inside.vhost, "", queue, properties.encode(told), body)
        self.confirm_later(copies)

    def _publish_fan(self) -> None:
        for _ in range(self.chance.choice((1, 1, 4))):
            self.fan_out(self.chance.choice(FANNED_SIZES), self.chance.randrange(4))

    def fan_out(self, length: int, level: int) -> None:
        """To several queues at once: from a size on, the body is shared."""
        body = self.next_body(length)
        moment = self.moment()
        copies = []
        for queue in FANNED:
            on = level if queue == "levels" else 0
            copies.append(self.promises.add(Copy(self.numbers, body, [(moment, queue)], on)))
            if queue == "levels":
                self._insert(copies[-1])
            else:
                self.ready[queue].append(copies[-1])
        told = properties.encode({"delivery_mode": 2, "priority": level})
        publish(self.inside.vhost, "fan", "", told, body)
        self.confirm_later(copies)

    def _publish_stream(self) -> None:
        for _ in range(self.chance.choice((1, 3))):
            self.stream.publish(self.inside, self._body())

    def _keep_place(self) -> None:
        self.stream.keep_place(self.inside)

    def _purge_stream(self) -> None:
        self.stream.purge(self.inside)

    def _collect(self) -> None:
        self.inside.collect()

    def _insert(self, copy: Copy) -> None:
        """By level, and by number within it."""
        queue = self.ready["levels"]
        queue.append(copy)
        queue.sort(key=lambda each: (-each.level, each.number))

    def publish_late(self) -> None:
        body = self._body()
        copy = self.promises.add(Copy(self.numbers, body, [(self.moment(), "late")], is_held=True))
        publish(self.inside.vhost, "later", "", LATE, body)
        self.confirm_later([copy])

    def _ring(self) -> None:
        self.inside.ring()

    def _dies(self, copy: Copy) -> None:
        """From now on it may be among the dead letters, and no more where it was, once that is
        settled there; at no time is it in neither."""
        copy.homes.append((self.moment(), "graves"))

    # -- consuming ---------------------------------------------------------------------------------

    def _take(self) -> None:
        queue = self.chance.choice(("plain", "plain", "levels", "reject"))
        for _ in range(self.chance.choice((1, 4, 16))):
            if not self.take_one(queue):
                break

    def take_one(self, queue: str) -> bool:
        """Delivers the next message of a queue, which has to be the one that is known to be next.
        False if there is none."""
        taker = self.inside.take(self.inside.vhost.queues[queue])
        moment = self.moment()
        if taker.body is None:
            return False
        copy = self.ready[queue].pop(0)
        assert copy.body == taker.body, f"{queue} gave {taker.body[:30]!r} for {copy}"
        copy.taken = min(copy.taken, moment)
        self.taken[queue].append((taker, copy))
        return True

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
        self.acknowledge(queue, taker, copy)

    def acknowledge(self, queue: str, taker: Taker, copy: Copy) -> None:
        """The message need not be there any more, and must not from the next tick on."""
        copy.forgotten = self.moment()
        self.settled.append(copy)
        self.inside.vhost.queues[queue].settle_place(taker.place)

    def _requeue(self) -> None:
        for queue, taken in self.taken.items():
            for taker, copy in taken:
                self.inside.vhost.queues[queue].requeue_place(taker.place)
                self.ready[queue].append(copy)
            self.ready[queue].sort(key=lambda each: (-each.level, each.number))
            taken.clear()

    def _purge(self) -> None:
        queue = self.chance.choice(("plain", "levels"))
        moment = self.moment()
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

    def tick(self) -> None:
        settled, self.settled = self.settled, []
        ended, self.ended = self.ended, []
        ticked = self.stream.ticking()
        self.inside.tick()
        self.inside.sync()
        moment = self.moment()
        for copy in settled:
            copy.gone = moment
        for queue in ended:
            queue.ended = moment
        ticked()

    def _come_and_go(self) -> None:
        """A queue comes with two messages, or the one of before goes."""
        name = "passing"
        known = self.promises.queues.get(name)
        vhost = self.inside.vhost
        if known is not None and known.unasked > self.moment():
            known.unasked = self.moment()
            for copy in self.ready.pop(name):
                copy.forgotten = self.moment()
                self.settled.append(copy)
            vhost.delete_queue(name)
            self.ended.append(known)
            return
        if known is not None and known.ended > self.moment():
            return
        self.promises.queues[name] = declared = Declared(self.moment())
        vhost.declare_queue(name, durable=True)
        copies = []
        for _ in range(2):
            body = self._body()
            copies.append(self.promises.add(Copy(self.numbers, body, [(self.moment(), name)])))
            publish(vhost, "", name, properties.encode({"delivery_mode": 2}), body)
        self.ready[name] = list(copies)
        self.confirm_later(copies)

        def promised() -> None:
            declared.promised = self.moment()

        self.inside.persister.after_round(promised)

    def _rest(self) -> None:
        for queue in self.inside.vhost.queues.values():
            queue.rest_if_idle(0.0, 0.0)
            queue.rest_if_idle(1.0, 0.0)

    def _restart(self) -> None:
        self.restart(clean=self.chance.random() >= 0.7)

    def restart(self, *, clean: bool) -> None:
        """A kill, or a clean stop, and another start: recovery is recorded too."""
        self.tick()
        if not clean:
            self.inside.kill()
        else:
            began = self.moment()
            self.inside.stop()
            self.saved.append((began, self._index_files()))
        for queue, taken in self.taken.items():
            self.ready[queue] += [copy for _, copy in taken]
            self.ready[queue].sort(key=lambda each: (-each.level, each.number))
            taken.clear()
        self.inside = Inside(Path(self.root), self.segment_size, self.profile).start()
        assert not self.inside.problems, self.inside.problems

    def _index_files(self) -> dict[str, bytes]:
        """Path -> content of the index in LevelDB, if there is one."""
        found = Path(self.root).glob("vhosts/*/bodies/index/*")
        return {str(path): path.read_bytes() for path in found}

    def index_at(self, moment: int) -> dict[str, bytes]:
        """The files of the index that lay there at a moment, if a clean stop left them."""
        return next((files for began, files in reversed(self.saved) if began <= moment), {})
