"""One queue with its store and persister in this process, driven step by step without a loop."""

from __future__ import annotations

import ctypes
import gc
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from broker.kernel.turn import Turn
from broker.queues.classic import ClassicQueue
from broker.store.commit.persister import Persister
from broker.store.commit.sync_method import MEASURED

INCARNATION = 1 << 32 | 7
PROPERTIES = b"\x10\x00\x02"
"""Delivery mode 2 and nothing else."""

Place = tuple[int, ...]


def ready(fds: Iterable[int], seconds: float | None) -> set[int]:
    """Those of which something can be read, after a wait of so long at most; None: of any length. A
    test's process may have more files open than `select` takes."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return {fd for fd, _ in poller.poll(None if seconds is None else seconds * 1000)}


def let_go(persister: Persister) -> None:
    """Has the collector walk over a persister's long lists of stores again, over which it does not
    in a broker: otherwise the stores, with their open files, stay until the process ends."""
    for each in gc.get_referents(persister):
        if isinstance(each, list) and not gc.is_tracked(each):
            ctypes.pythonapi.PyObject_GC_Track(ctypes.py_object(each))


class Taker:
    """What `ClassicQueue.get` answers to."""

    no_ack = False

    def __init__(self) -> None:
        self.done = False
        self.body: bytes | None = None
        self.place: Place = ()

    def message(
        self, queue: Any, exchange: bytes, key: bytes, props: bytes, body: bytes, place: Place
    ) -> None:
        """A message was handed over."""
        self.done, self.body, self.place = True, body, place

    def empty(self, _queue: Any) -> None:
        """There is none."""
        self.done = True

    @property
    def redelivered(self) -> bool:
        """Whether the message may have been delivered before."""
        return bool(self.place[3])


class Driven:
    """A durable queue in `directory`. Raises AssertionError when the disk fails."""

    def __init__(
        self,
        directory: Path,
        segment_size: int = 65536,
        incarnation: int = INCARNATION,
        arguments: dict[str, Any] | None = None,
        *,
        space_ahead: int = 64 << 10,
        direct_files: int = 64,
        sync_method: str = MEASURED,
        start: bool = True,
    ) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.failed: str | None = None
        self.turn = Turn(self.callbacks.append, lambda: self.persister.collect())
        self.persister = Persister(
            str(directory), self.turn.wake, segment_size=segment_size, sync_method=sync_method
        )
        self.persister.space_ahead = space_ahead
        self.persister.direct.files = direct_files
        self.persister.failed = self._failed
        self.persister.relieved = lambda: None
        self.parent = directory / "vhosts/0000000100000001/queues"
        self.parent.mkdir(exist_ok=True, parents=True)
        self.queue = ClassicQueue(
            self.turn,
            self.persister,
            str(self.parent),
            "/",
            "q",
            incarnation,
            durable=True,
            arguments=arguments,
        )
        self.timers: list[float] = []
        self.queue.later = lambda seconds, _callback: self.timers.append(seconds)
        self.directory = self.parent / f"{incarnation:016x}"
        if start:
            self.persister.start()

    def _failed(self, text: str, doubtful: bool) -> None:
        self.failed = text

    def recover(self) -> list[str]:
        """Finds what an earlier run left; what was wrong."""
        return self.queue.recover()

    # -- the loop's part ---------------------------------------------------------------------------

    def pump(self, done: Callable[[], bool], seconds: float = 120) -> None:
        """Runs what the loop would until `done()`."""
        threads = {thread.event_fd: on_ready for thread, on_ready in self.persister.threads.items()}
        deadline = time.monotonic() + seconds
        while not done() and self.failed is None:
            while self.callbacks:
                callbacks, self.callbacks[:] = self.callbacks[:], []
                for callback in callbacks:
                    callback()
            if done() or self.failed is not None:
                break
            assert time.monotonic() < deadline, "nothing happened"
            for descriptor in ready(threads, 0.2):
                threads[descriptor]()

    def sync(self) -> None:
        """Everything so far is written and synced."""
        told: list[bool] = []
        self.persister.after_round(lambda: told.append(True))
        self.pump(lambda: bool(told))

    def tick(self) -> None:
        """The periodic work of a fifth of a second, to its end: writes, syncs, background work."""
        for _ in range(3):
            # Else the tick only asks for the round behind the one in flight.
            self.pump(lambda: not self.persister.waits_for_disk)
            before = self.persister.completed
            busy = self.persister.gathering
            self.persister.tick()
            if self.persister.gathering > busy:
                self._completed_after(before)
            self.pump(lambda: not self.persister.background.remover.open)

    def _completed_after(self, number: int) -> None:
        self.pump(lambda: self.persister.completed > number)

    def stop(self) -> None:
        """A clean stop."""
        self.queue.close()
        self.persister.stop()
        self._close()

    def kill(self) -> None:
        """Forgets everything in memory, as kill -9 does; what was handed to threads gets done."""
        for thread in self.persister.io_threads:
            thread.stop()
        self._close()

    def _close(self) -> None:
        for thread in self.persister.io_threads:
            thread.close()
        let_go(self.persister)

    # -- messages ----------------------------------------------------------------------------------

    def publish(self, body: bytes, persistent: bool = True) -> None:
        """A message at the end."""
        self.queue.put(b"", b"q", PROPERTIES, body, persistent)

    def take(self) -> Taker:
        """The next message, or none (`body` is None then)."""
        taker = Taker()
        self.queue.get(taker)
        self.pump(lambda: taker.done)
        return taker

    def settle(self, taker: Taker) -> None:
        """An ack."""
        self.queue.settle_place(taker.place)

    def requeue(self, taker: Taker) -> None:
        """Back to its place."""
        self.queue.requeue_place(taker.place)

    def drain(self) -> list[bytes]:
        """Takes all there is, settles nothing."""
        bodies = []
        while (body := self.take().body) is not None:
            bodies.append(body)
        return bodies

    def files(self, kind: str) -> list[Path]:
        """The queue's files of one kind, in order."""
        return sorted(self.directory.glob(f"{kind}.*"))
