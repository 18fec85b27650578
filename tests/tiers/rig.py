"""A broker below its server with its tiers, in this process and without a loop: what the tiers
process would do is done when a test says so, by the same code, or goes wrong as it says."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from broker.features.tiers.feature import Tiers
from broker.fields import properties
from broker.kernel import clock
from broker.queues.stream_arguments import Start
from broker.schema.tier_work import Answer, Task
from broker.settings.config import Config
from broker.store.directory.identities import identities
from management.tiers.work import Work
from tests.crash.inside import Inside, publish

NAME = "s"
PERSISTENT = properties.encode({"delivery_mode": 2})
SEGMENT = 4096
TIERED: dict[str, Any] = {
    "x-queue-type": "stream",
    "x-stream-tier": True,
    "x-stream-max-segment-size-bytes": SEGMENT,
    "x-stream-local-max-bytes": 0,
}
BODY = 1000
FIRST = Start("first")

Fault = Callable[[Task], Answer | None]


class Tiered(Inside):
    """`store` is the directory that the object store is. `answer` may answer in its place."""

    def __init__(self, directory: Path, store: Path, **settings: Any) -> None:
        super().__init__(directory, SEGMENT)
        self.config = Config(
            data_dir=directory, object_store=f"file://{store}", **{"tier_grace": 100.0, **settings}
        )
        self.store = store / "tiers"
        self.stopping = False
        self.tasks: list[Task] = []
        self.done: list[tuple[str, str]] = []
        """Kind and fault of each task."""
        self.answer: Fault = lambda _: None
        self.loop = self
        self.called: SimpleQueue[Callable[[], object]] = SimpleQueue()
        tiers: Any = Tiers(self)
        self.tiers = tiers
        self.features = [tiers]
        self.seconds = 0.0
        """Of the clock that pauses and patience go by."""
        pauses = (tiers._pause, tiers._open_pause, tiers._deletion_pause, tiers._cold.pause)
        for part in pauses:
            part._now = lambda: self.seconds
        tiers._cold._now = lambda: self.seconds
        self.work = Work(self.config.tier_store, timeout=10)

    @property
    def vhosts(self) -> dict[str, Any]:
        return self.definitions.vhosts

    def start(self) -> Tiered:
        super().start()
        return self

    def make_runs_short(self) -> None:
        # Called at the end of the start: the features' part of it. Nothing was written meanwhile.
        self.identities = identities(str(self.config.data_dir))
        self.tiers.start(clock.now())

    # -- time --------------------------------------------------------------------------------------

    def connect(self) -> None:
        """The tiers process comes."""
        self.tiers.connected(self.tasks.append)

    def work_off(self) -> bool:
        """The tiers process does what it was given; whether that was anything."""
        tasks, self.tasks[:] = self.tasks[:], []
        for task in tasks:
            answer = self.answer(task) or self.work.carry_out(task)
            self.done.append((task.kind, answer.fault))
            self.tiers.carrier.answered(answer)
        return bool(tasks)

    def second(self) -> None:
        """A second passes, with all that its ticks begin."""
        self.seconds += 1
        for feature in self.features:
            for step in feature.tick(clock.now()) or ():
                if step is not None:
                    step()
        self.rest()

    def rest(self) -> None:
        """Everything that was begun comes to its end."""
        while True:
            self.tick()
            was_called = self.do_calls()
            if not self.work_off() and not was_called:
                break

    def call_soon_threadsafe(self, act: Callable[[], object]) -> None:
        """As the loop's."""
        self.called.put(act)

    def do_calls(self) -> bool:
        """Does what threads wanted done; whether that was anything."""
        were_any = not self.called.empty()
        while not self.called.empty():
            self.called.get()()
        return were_any

    def until(self, done: Callable[[], bool]) -> None:
        """Seconds pass until something is so."""
        deadline = time.monotonic() + 30
        while not done():
            assert time.monotonic() < deadline, self.tiers.figures()
            self.second()
            self.ring()

    def _is_idle(self) -> bool:
        return super()._is_idle() and not self.persister.reader.open

    # -- the stream --------------------------------------------------------------------------------

    @property
    def stream(self) -> Any:
        return self.vhost.queues[NAME]

    def declare(self, **more: Any) -> None:
        arguments = {f"x-{name.replace('_', '-')}": value for name, value in more.items()}
        self.vhost.declare_queue(NAME, durable=True, arguments={**TIERED, **arguments})
        self.sync()

    def publish(self, count: int, first: int | None = None) -> None:
        """Messages whose bodies begin with their offsets, confirmed."""
        for _ in range(count):
            offset = self.stream.store.next_offset
            body = offset.to_bytes(8) + bytes([offset % 251]) * (BODY - 8)
            publish(self.vhost, "", NAME, self.properties_of(offset), body)
        self.sync()

    def properties_of(self, _offset: int) -> bytes:
        return PERSISTENT

    def offsets(self, start: Start = FIRST, count: int = 1 << 30) -> list[int]:
        """Of what a reader gets; each message is checked."""
        told: list[list[Any]] = []
        self.stream.browse(start, count, 1 << 40, told.append)
        deadline = time.monotonic() + 30
        while not told:
            assert time.monotonic() < deadline, self.tiers.figures()
            self.rest()
            self.seconds += 0.25
            self.ring()
        found = []
        for offset, _, _, _, _, body in told[0]:
            assert body == offset.to_bytes(8) + bytes([offset % 251]) * (BODY - 8)
            found.append(offset)
        return found

    def cold(self) -> int:
        return int(self.stream.store.cold_segments)

    def objects(self) -> set[str]:
        """Names of all segments in the store."""
        paths = (path for path in self.store.rglob("*") if path.is_file())
        return {str(path.relative_to(self.store)) for path in paths} - {"owner"}

    # -- ends --------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Once."""
        if self.running:
            super().kill()
            self.running = False

    def again(self, **settings: Any) -> Tiered:
        """After a kill."""
        self.kill()
        return Tiered(self.directory, self.store.parent, **settings).start()

    def copied(self, place: Path) -> tuple[Path, Path]:
        """Directory and store as they are now."""
        shutil.copytree(self.directory, place / "data")
        if self.store.parent.exists():
            shutil.copytree(self.store.parent, place / "store")
        return place / "data", place / "store"
