"""A vhost's body store with queues, without a loop: `settle` does what the broker's loop does.

`Rig.crash` leaves everything as kill -9 would and starts again on the same directory; `Rig.restart`
stops cleanly first.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.kernel.turn import Turn
from broker.queues.classic import ClassicQueue
from broker.store.bodies.settings import BodySettings
from broker.store.bodies.store import BodyStore
from broker.store.commit.persister import Persister
from broker.store.files import disk
from broker.store.index.location_index import IndexSettings
from tests.inner import body_references
from tests.store.driven import let_go, ready

BACKENDS = ("ram", "leveldb")
backends = pytest.mark.parametrize("backend", BACKENDS)


def settings_of(backend: str, **more: int) -> BodySettings:
    return BodySettings(index=IndexSettings(backend=backend, bloom_capacity=1000), **more)


def body(number: int, size: int = 5000) -> bytes:
    return number.to_bytes(4) + bytes([number % 251]) * (size - 4)


PROPERTIES = b"\x00\x00"
VHOST = 0x0000000100000001


class Taken:
    """What a get brought."""

    no_ack = False

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.place: tuple[int, ...] = ()
        self.answered = False

    def message(
        self,
        queue: Any,
        exchange: Any,
        key: Any,
        properties: Any,
        body: bytes,
        place: tuple[int, ...],
    ) -> None:
        self.body, self.place, self.answered = body, place, True

    def empty(self, queue: Any) -> None:
        self.answered = True


class Rig:
    """`queues` are durable; `transient` ones end with a restart."""

    def __init__(
        self,
        path: Path,
        queues: int = 3,
        *,
        transient: int = 0,
        settings: BodySettings | None = None,
        segment_size: int = 64 << 10,
        arguments: dict[int, dict[str, Any]] | None = None,
    ) -> None:
        self.path = path
        self.settings = settings or BodySettings()
        self.segment_size = segment_size
        self.count = queues
        self.transient = transient
        self.arguments = arguments or {}
        self.dead_letters: dict[int, list[int]] = {}
        self.boot = 0
        self.failures: list[str] = []
        self.copies = 0
        self.start()

    def start(self) -> None:
        self.boot += 1
        self.turn = Turn(schedule=lambda run: None)
        self.persister = Persister(
            str(self.path), lambda: None, segment_size=self.segment_size, no_sync=False
        )
        self.persister.failed = self.failures.append
        self.persister.relieved = lambda: None
        self.turn.after = self.persister.collect
        for name in ("queues", "transient"):
            if name == "transient":
                disk.remove_tree(f"{self.path}/{name}")
            disk.makedirs(f"{self.path}/{name}")
        self.bodies = BodyStore(self.persister, f"{self.path}/bodies", VHOST, self.settings)
        self.problems = self.bodies.recover(self.boot)
        self.was_clean = self.bodies.recovery.clean
        self.queues = [self.queue(number) for number in range(self.count + self.transient)]
        for queue in self.queues:
            self.problems += queue.recover()
        self.bodies.finish_recovery()
        self.persister.start()

    def queue(self, number: int) -> ClassicQueue:
        durable = number < self.count
        queue = ClassicQueue(
            self.turn,
            self.persister,
            f"{self.path}/{'queues' if durable else 'transient'}",
            "/",
            f"q{number}",
            (1 << 32) + 100 + number + (0 if durable else self.boot << 16),
            durable=durable,
            arguments=self.arguments.get(number, {}),
        )
        queue.bodies = self.bodies
        queue.later = lambda seconds, callback: None
        queue.dead_letter = lambda *_: (
            tuple(self.queues[target] for target in self.dead_letters[number]),
            b"dead",
            b"k",
            PROPERTIES,
            None,
        )
        return queue

    def dead_letter(self, number: int, targets: list[int]) -> None:
        """What queue `number` rejects goes to these, from the next start on too."""
        self.dead_letters[number] = targets
        self.arguments[number] = {"x-dead-letter-exchange": "dead"}
        self.queues[number].reconfigure(self.arguments[number])

    # -- the loop ----------------------------------------------------------------------------------

    def settle(self, *, tick: bool = True) -> None:
        """Lets everything come to its end that was begun."""
        persister = self.persister
        threads = persister.threads
        for _ in range(2):
            self.turn.run()
            if tick:
                persister.tick()
            quiet = 0
            while quiet < 2:
                wait = 5.0 if any(thread.open for thread in threads) else 0.002
                answered = ready(threads_fds(threads), wait)
                quiet = 0 if answered else quiet + 1
                for thread, on_ready in threads.items():
                    if thread.event_fd in answered:
                        on_ready()
                self.turn.run()

    def publish(self, body: bytes, targets: list[int], *, priority: int | None = None) -> None:
        properties = PROPERTIES if priority is None else b"\x08\x00" + bytes([priority])
        reference = None
        if len(targets) > 1 and len(body) >= self.settings.embed_below:
            reference = self.bodies.share_bytes(body)
        for number in targets:
            self.queues[number].put(b"x", b"k", properties, body, True, reference)
        if reference is not None:
            self.bodies.release_bytes(reference)

    def get(self, number: int) -> Taken:
        taken = Taken()
        self.queues[number].get(taken)
        self.turn.run()
        while not taken.answered:
            self.settle(tick=False)
        return taken

    def get_at_once(self, number: int) -> Taken:
        """A get while no round runs."""
        taken = Taken()
        self.queues[number].get(taken)
        self.turn.after = lambda: None
        self.turn.run()
        self.turn.after = self.persister.collect
        assert taken.answered
        return taken

    def collect(self) -> int:
        """Collects until nothing is worth it; how many runs."""
        runs = self.bodies.figures()["gc_runs"]
        for _ in range(200):
            before = self.bodies.figures()["gc_runs"]
            self.bodies.tick(1e12)
            self.settle()
            if self.bodies.figures()["gc_runs"] == before:
                break
        return self.bodies.figures()["gc_runs"] - runs

    # -- ends --------------------------------------------------------------------------------------

    def stop(self, *, clean: bool = True, settled: bool = True) -> None:
        """Without `settled`, the stop itself has to write what this turn left in memory."""
        if clean:
            if settled:
                self.settle()
            for queue in self.queues:
                queue.close()
            self.bodies.clean_up()
            self.persister.stop()
            self.bodies.close(True)
        else:
            self.bodies.close(False)
            self.persister.stop()
        self._close()

    def _close(self) -> None:
        for thread in self.persister.io_threads:
            thread.close()
        let_go(self.persister)

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash(self) -> None:
        """Starts on a copy of the files as they are now, as after kill -9."""
        image = self.copied()
        self.bodies.delete()
        self.persister.stop()
        self._close()
        self.path = image
        self.start()

    def copied(self) -> Path:
        """A copy of the files as they are now."""
        self.copies += 1
        image = self.path.with_name(f"copy-{self.copies}")
        shutil.copytree(self.path, image)
        return image

    def image(self) -> dict[bytes, int]:
        """References of every id, as the index has them."""
        return body_references(self.bodies)


def threads_fds(threads: Any) -> Any:
    return [thread.event_fd for thread in threads]
