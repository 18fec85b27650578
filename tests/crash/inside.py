"""The broker below its server, in this process: vhosts, queues and the store, without a loop.

What the loop would do is done step by step, so that a recording of the file operations can be set
beside what was promised at each of them.
"""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.features import delayed
from broker.fields import properties
from broker.kernel import clock
from broker.kernel.contracts import Topology
from broker.kernel.turn import Turn
from broker.queues.types import MessageQueue
from broker.settings.config import Config
from broker.settings.files import SettingsFiles
from broker.store.commit.persister import Persister
from broker.store.directory import last_mount
from broker.store.files import disk
from broker.vhosts.definitions import Definitions
from broker.vhosts.policies import Policies
from broker.vhosts.vhost import VHost
from tests.crash.profiles import Profile
from tests.inner import space_ahead_after
from tests.store.driven import Taker

PATIENCE = 30.0
SEGMENT = 4096
SPACE_AHEAD = (16, 1_000_000_000)
"""As the broker has it: rounds, and nanoseconds."""
USUAL = Profile("usual")


def publish(vhost: VHost, exchange: str, key: str, listed: bytes, body: bytes) -> bool:
    """Publishes a message with this property list; whether any queue took it."""
    found = properties.decode(listed)
    return vhost.publish(vhost.exchange(exchange), [key], found, body).taken > 0


class NoTimer:
    """A timer that never fires."""

    def cancel(self) -> None:
        """Nothing to take back."""


class Inside:
    """A broker on `directory`. Raises AssertionError when the disk fails or nothing happens."""

    ended = 0
    """How many there were."""

    def __init__(
        self, directory: Path, segment_size: int = SEGMENT, profile: Profile = USUAL
    ) -> None:
        self.directory = directory
        self.profile = profile
        # Soon, so that the short workloads have states with space ahead.
        space_ahead_after(2, 3_600_000_000_000)
        self.callbacks: list[Callable[[], None]] = []
        self.failed: str | None = None
        self.timers: list[Callable[[], None]] = []
        self.turn = Turn(self.callbacks.append, lambda: self.persister.collect())
        self.persister = Persister(
            str(directory),
            self.turn.wake,
            segment_size=segment_size,
            open_files_limit=profile.open_files,
        )
        self.persister.failed = self._failed
        self.persister.relieved = lambda: None
        self.topology = Topology()
        self.files = SettingsFiles(directory, disk)
        self.policies = Policies(self.files)
        self.config = Config()
        self.features = [delayed.build(self)]
        self.definitions = Definitions(str(directory), self.files, self._make_vhost)
        self.running = False

    def _failed(self, text: str, _doubtful: bool) -> None:
        self.failed = text

    def _make_vhost(self, name: str, incarnation: int, directory: str, **properties: Any) -> VHost:
        return VHost(
            name,
            incarnation,
            directory,
            persister=self.persister,
            turn=self.turn,
            topology=self.topology,
            policies=self.policies,
            next_incarnation=self.definitions.next_incarnation,
            emit=lambda _event, _data: None,
            later=self.later,
            features=self.features,
            body_settings=self.profile.bodies,
            **properties,
        )

    def later(self, _seconds: float, callback: Callable[[], None]) -> NoTimer:
        """Timers are rung by hand: `ring`."""
        self.timers.append(callback)
        return NoTimer()

    def ring(self) -> None:
        """Every timer's time has come."""
        timers, self.timers = self.timers, []
        for timer in timers:
            timer()

    def start(self) -> Inside:
        """Recovers, and starts the threads."""
        directory = str(self.directory)
        disk.makedirs(directory)
        self.persister.doubts_marks = not last_mount.has_all(directory)
        self.definitions.recover()
        self.persister.origins.boot = self.definitions.boot
        self.files.flush()
        self.persister.sync_file_system()
        self.persister.start()
        self.running = True
        for vhost in self.definitions.vhosts.values():
            vhost.start()
        self.make_runs_short()
        if self.persister.doubts_marks:
            self.persister.after_round(lambda: last_mount.note_start(directory))
        else:
            last_mount.note_start(directory)
        return self

    def make_runs_short(self) -> None:
        """The timing indexes of exchanges that hold messages back spill as the profile says."""
        for exchange in self.vhost.exchanges.values():
            if exchange.holding is not None:
                exchange.holding.schedule.table_max = self.profile.run_of

    @property
    def vhost(self) -> VHost:
        """The default vhost."""
        return self.definitions.vhosts["/"]

    @property
    def problems(self) -> list[str]:
        """What recovery found wrong."""
        return self.definitions.problems

    @property
    def held(self) -> int:
        """Messages that an exchange holds back, or that are leaving it."""
        holdings = [exchange.holding for exchange in self.vhost.exchanges.values()]
        return sum(each.messages + each.messages_leaving for each in holdings if each is not None)

    # -- the loop's part ---------------------------------------------------------------------------

    def turns(self) -> None:
        """Ends the turns that were asked for."""
        while self.callbacks and self.failed is None:
            callbacks, self.callbacks[:] = self.callbacks[:], []
            for callback in callbacks:
                callback()

    def pump(self, done: Callable[[], bool]) -> None:
        """Runs what the loop would until `done()`."""
        threads = {thread.event_fd: on_ready for thread, on_ready in self.persister.threads.items()}
        poll = select.poll()
        for fd in threads:
            poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + PATIENCE
        while True:
            self.turns()
            assert self.failed is None, self.failed
            if done():
                break
            assert time.monotonic() < deadline, f"nothing happened: {self._state()}"
            for fd, _ in poll.poll(1 if self.timers else 200):
                threads[fd]()

    def _state(self) -> str:
        """What might be waited for."""
        persister = self.persister
        exchanges = self.vhost.exchanges.values()
        holdings = [each.holding for each in exchanges if each.holding is not None]
        held = [
            (each.messages, each.messages_leaving, each.schedule.runs, each.schedule.in_memory)
            for each in holdings
        ]
        return (
            f"round {persister.gathering}, completed {persister.completed}, "
            f"indexing {persister.indexing.open}, collecting {persister.collecting.open}, "
            f"background {persister.background.remover.open}, "
            f"timers {len(self.timers)}, held {held}"
        )

    def sync(self) -> None:
        """Everything so far is written and synced, acks within their 200 ms excepted."""
        told: list[bool] = []
        self.persister.after_round(lambda: told.append(True))
        self.pump(lambda: bool(told))

    def tick(self) -> None:
        """What the periodic work does five times a second, to its end: all is synced, acks too."""
        for _ in range(3):
            self.pump(self._is_idle)
            self.persister.tick()
            self.pump(self._is_idle)

    def collect(self) -> None:
        """The collector of shared bodies looks once whether it is worth while, and comes to its
        end."""
        self.vhost.bodies.tick(clock.now() / 1000)
        self.pump(lambda: self._is_idle() and not self.vhost.bodies.collector.busy)

    def _is_idle(self) -> bool:
        in_flight = self.persister.completed + 1 < self.persister.gathering
        asked = self.persister.indexing.open or self.persister.collecting.open
        return not in_flight and not asked and not self.persister.background.remover.open

    def stop(self) -> None:
        """A clean stop."""
        self.turns()
        for feature in self.features:
            feature.stop(clock.now())
        for vhost in self.definitions.vhosts.values():
            vhost.close()
        self.persister.stop()
        for vhost in self.definitions.vhosts.values():
            vhost.closed()
        self.files.flush()
        last_mount.note_stop(str(self.directory))
        self._close()

    def kill(self) -> None:
        """Forgets what is in memory, as kill -9 does; what the threads have gets done."""
        for thread in self.persister.io_threads:
            if self.running:
                thread.stop()
        self.persister.collecting.stop()
        for vhost in self.definitions.vhosts.values():
            # Another broker may open an index in LevelDB only when this one has it no more.
            vhost.bodies.delete()
        self.persister.indexing.stop()
        self._close()

    def _close(self) -> None:
        space_ahead_after(*SPACE_AHEAD)
        for thread in self.persister.io_threads:
            thread.close()
        Inside.ended += 1
        if Inside.ended % 20 == 0:
            # A broker that is forgotten has its files open until it is collected.
            gc.collect()

    # -- messages ----------------------------------------------------------------------------------

    def take(self, queue: MessageQueue) -> Taker:
        """The queue's next message, or none (`body` is None then)."""
        taker = Taker()
        queue.get(taker)
        self.pump(lambda: taker.done)
        assert taker.done, self.failed
        return taker

    def drain(self, name: str) -> list[Taker]:
        """Takes all that is ready, settles nothing."""
        queue = self.vhost.queues[name]
        taken: list[Taker] = []
        if queue.type == "stream":
            return taken
        while (taker := self.take(queue)).body is not None:
            taken.append(taker)
        return taken
