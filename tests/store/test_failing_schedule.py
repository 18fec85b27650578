"""A disk that fails reads of what is delayed: each message comes, in the order of the due times."""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.features.delayed.holding import Holding
from broker.fields import properties
from broker.kernel import clock
from broker.store.files import disk
from tests.store import recorder
from tests.store.bodies_rig import Rig, body

COUNT = 300
TABLE = 100
"""Messages in a run: more than are kept of it in memory."""


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    recorder.fail("read", 0, 0)


class Delayed:
    """An exchange's holding whose due messages go to the rig's only queue."""

    def __init__(self, rig: Rig) -> None:
        self.timers: list[Callable[[], None]] = []
        self.rig = rig
        self.holding = Holding(
            rig.turn,
            rig.persister,
            self.later,
            f"{rig.path}/delayed",
            f"{rig.path}/schedule",
            "later",
            (1 << 32) + 700,
            True,
            lambda key, listed: ((rig.queues[0],), None),
            rig.bodies,
        )
        self.holding.schedule.table_max = TABLE
        self.due: list[tuple[int, int]] = []
        """Of each message that was published, the earliest and the latest due time."""

    def publish(self, number: int) -> None:
        delay = 1 + number % 7
        listed = properties.encode({"headers": {"x-delay": delay}})
        began = clock.now()
        self.holding.put(b"later", b"k", listed, body(number, 50), True)
        self.due.append((began + delay, clock.now() + delay))

    def later(self, seconds: float, callback: Callable[[], None]) -> Any:
        self.timers.append(callback)
        return SimpleNamespace(cancel=lambda: None)

    def until(self, done: Callable[[], bool]) -> None:
        """Runs what the loop would. Every timer is early; it is set again then."""
        deadline = time.monotonic() + 30
        while not done():
            assert time.monotonic() < deadline
            timers, self.timers[:] = self.timers[:], []
            for callback in timers:
                callback()
            self.rig.settle()


def stopped(path: Path) -> Delayed:
    """Delayed messages whose due times lie in files; the rig is stopped."""
    rig = Rig(path / "data", queues=1)
    for name in ("delayed", "schedule"):
        disk.makedirs(f"{rig.path}/{name}")
    delayed = Delayed(rig)
    for number in range(COUNT):
        delayed.publish(number)
    for _ in range(3):
        rig.settle()
    assert delayed.holding.schedule.runs == COUNT // TABLE
    assert len(list((rig.path / "schedule").rglob("due.*"))) == COUNT // TABLE
    delayed.holding.close()
    rig.stop()
    return delayed


def restarted(path: Path) -> tuple[Rig, Delayed]:
    """Of those, nothing is in memory."""
    before = stopped(path)
    rig = before.rig
    rig.start()
    delayed = Delayed(rig)
    delayed.due = before.due
    assert delayed.holding.recover() == []
    rig.persister.failed_reads.retry_after = 0.0
    return rig, delayed


@pytest.mark.parametrize("which", range(1, 5))
def test_a_failed_read_stops_no_delayed_message_for_good(tmp_path: Path, which: int) -> None:
    """The first read is of the messages themselves, the others are of their due times."""
    rig, delayed = restarted(tmp_path)
    queue = rig.queues[0]
    recorder.fail("read", which, errno.EIO)
    delayed.holding.start()
    delayed.until(lambda: rig.persister.failed_reads.count == 1)
    delayed.until(lambda: queue.messages_ready == COUNT)
    came = [int.from_bytes(rig.get(0).body[:4]) for _ in range(COUNT)]
    assert sorted(came) == list(range(COUNT))
    for one, following in itertools.pairwise(came):
        assert delayed.due[one][0] <= delayed.due[following][1]
    delayed.until(lambda: delayed.holding.messages_leaving == 0)
    assert list((rig.path / "schedule").rglob("due.*")) == []
    delayed.holding.close()
    rig.stop()


def test_an_exchange_may_be_deleted_while_its_due_times_cannot_be_read(tmp_path: Path) -> None:
    rig, delayed = restarted(tmp_path)
    reads = rig.persister.failed_reads
    recorder.fail("read", 2, errno.EIO)
    reads.retry_after = 1000.0
    delayed.holding.start()
    delayed.until(lambda: reads.waiting == 1)
    delayed.holding.delete()
    delayed.until(lambda: not list((rig.path / "schedule").iterdir()))
    reads.now = lambda: time.monotonic() + 1000.0
    rig.settle()
    assert reads.waiting == 0
    rig.stop()
