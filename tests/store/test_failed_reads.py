"""A disk that fails reads for a while: nothing is dropped, and delivery goes on by itself."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.server.stall import FAILING_NAME, Stall
from broker.store.commit.failed_reads import WOKEN_AT_ONCE, FailedReads
from tests.conftest import Make
from tests.store import recorder
from tests.store.bodies_rig import Rig, Taken, backends, body, settings_of


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    recorder.fail("read", 0, 0)


def asked(rig: Rig, queue: int) -> Taken:
    taken = Taken()
    rig.queues[queue].get(taken)
    return taken


def until(rig: Rig, done: Callable[[], bool]) -> None:
    """Runs what the loop would; the reading thread may be slow."""
    deadline = time.monotonic() + 30
    while not done():
        rig.settle()
        assert time.monotonic() < deadline


@backends
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "embedded"])
def test_it_goes_on_in_order_when_the_disk_is_well_again(
    tmp_path: Path, backend: str, shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    size = 5000 if shared else 50
    rig = Rig(tmp_path / "data", settings=settings_of(backend))
    for number in range(20):
        rig.publish(body(number, size), [0, 1, 2])
    rig.settle()
    rig.restart()
    clock = Clock()
    reads = rig.persister.failed_reads
    reads.now = clock
    recorder.fail("read", -1, errno.EIO)
    with caplog.at_level(logging.WARNING, "leveret.store"):
        taken = [asked(rig, queue) for queue in range(3)]
        until(rig, lambda: reads.waiting == 3)
        for _ in range(5):
            # Before the pause is over nobody asks again.
            rig.settle()
        assert (reads.count, reads.waiting) == (3, 3)
        clock.seconds += 1
        until(rig, lambda: reads.count == 6)
        assert reads.waiting == 3
        assert not any(each.answered for each in taken)
        assert [queue.messages_ready for queue in rig.queues] == [20] * 3
        # Once a pause, not once a message.
        assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
        assert "Input/output error" in caplog.records[0].message
        assert "(2 more since the last time)" in caplog.records[1].message
        recorder.fail("read", 0, 0)
        clock.seconds += 1
        until(rig, lambda: all(each.answered for each in taken))
        assert [each.body for each in taken] == [body(0, size)] * 3
        assert reads.last_error
        clock.seconds += 1
        rig.settle()
    assert not reads.last_error
    assert caplog.records[-1].levelname == "WARNING"
    for queue in range(3):
        got = [rig.get(queue).body for _ in range(19)]
        assert got == [body(number, size) for number in range(1, 20)]
        assert rig.queues[queue].messages_ready == 0
    assert rig.bodies.figures()["dangling"] == 0
    assert rig.persister.quarantine.count == 0
    rig.stop()


def test_traffic_may_ask_before_the_pause_is_over(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    rig.publish(body(1), [0, 1])
    rig.settle()
    rig.restart()
    recorder.fail("read", 2, errno.EIO)  # the first one is of the queue's segment
    taken = asked(rig, 0)
    until(rig, lambda: rig.persister.failed_reads.count == 1)
    rig.queues[0].wake()
    until(rig, lambda: taken.answered)
    assert taken.body == body(1)
    rig.stop()


def test_a_queue_that_is_deleted_meanwhile_is_not_woken_to_life(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    rig.publish(body(1), [0, 1])
    rig.settle()
    rig.restart()
    clock = Clock()
    rig.persister.failed_reads.now = clock
    recorder.fail("read", 2, errno.EIO)
    asked(rig, 0)
    until(rig, lambda: rig.persister.failed_reads.waiting == 1)
    rig.queues.pop(0).delete()
    clock.seconds += 2
    rig.settle()
    assert rig.persister.failed_reads.waiting == 0
    assert rig.get(0).body == body(1)
    rig.stop()


def test_it_wakes_so_many_in_a_turn_and_each_once() -> None:
    clock = Clock()
    reads = FailedReads(1.0, clock)
    woken: list[int] = []
    wakes = [lambda number=number: woken.append(number) for number in range(WOKEN_AT_ONCE + 5)]
    for wake in wakes * 2:
        reads.add("it", "an error", wake)
    reads.tick()
    assert woken == []
    clock.seconds += 1
    reads.tick()
    assert woken == list(range(WOKEN_AT_ONCE))
    reads.tick()
    assert woken == list(range(WOKEN_AT_ONCE + 5))
    reads.tick()
    assert len(woken) == WOKEN_AT_ONCE + 5


def test_a_quiet_queue_is_woken_in_time_beside_one_that_fails_all_the_time() -> None:
    clock = Clock()
    reads = FailedReads(1.0, clock)
    woken: dict[str, list[float]] = {"quiet": [], "busy": []}

    def quiet() -> None:
        woken["quiet"].append(clock.seconds)

    def busy() -> None:
        woken["busy"].append(clock.seconds)

    reads.add("a quiet queue", "an error", quiet)
    clock.seconds += 0.5
    for _ in range(20):
        clock.seconds += 0.1
        # Traffic asks there again and again.
        reads.add("a busy queue", "an error", busy)
        reads.tick()
    assert woken["quiet"] == [pytest.approx(101.0, abs=0.11)]
    assert woken["busy"][0] == pytest.approx(101.6, abs=0.11)


def test_the_log_is_told_once_a_pause_however_much_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    reads = FailedReads(1.0, clock)
    for number in range(35):
        reads.add(f"queue {number}", "an error", lambda: None)
        reads.tick()
        clock.seconds += 0.125
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 5
    assert "(7 more since the last time)" in caplog.records[1].message


def test_the_alarm_stays_while_reads_that_were_asked_again_have_not_ended() -> None:
    """A disk that takes 7 s to fail a read is not well in between."""
    clock = Clock()
    begun = [1, 10]
    still = [0, 2]
    reads = FailedReads(1.0, clock, lambda: ((begun[0], still[0]), (begun[1], still[1])))
    ends: list[float] = []

    def wake() -> None:
        begun[0] += 1
        still[0] += 1
        ends.append(clock.seconds + 7)

    reads.add("messages in /data/q", "an error", wake)
    for _ in range(200):
        clock.seconds += 0.2
        if ends and clock.seconds >= ends[0]:
            ends.clear()
            still[0] -= 1
            reads.add("messages in /data/q", "an error", wake)
        reads.tick()
        assert reads.last_error
    assert reads.count > 4
    # The next one is read. Others that were under way then have to end too, later ones do not.
    reads._waiting.clear()
    still[0] = 0
    clock.seconds += 2
    reads.tick()
    assert reads.last_error
    begun[1] += 5
    still[1] = 5
    reads.tick()
    assert reads.last_error == ""


def test_it_shows_as_an_alarm_while_it_lasts() -> None:
    clock = Clock()
    reads = FailedReads(1.0, clock)
    broker: Any = SimpleNamespace(persister=SimpleNamespace(failed_reads=reads))
    stall = Stall(broker)
    assert stall.rows() == []
    reads.add("messages in /data/q", "Input/output error", lambda: None)
    (row,) = stall.rows()
    assert row["name"] == FAILING_NAME
    assert "messages in /data/q failed: Input/output error" in row["text"]
    assert "1 reads failed" in row["text"]
    for _ in range(2):
        clock.seconds += 1
        reads.tick()
    assert stall.rows() == []


@pytest.mark.parametrize("value", ["soon", "0", "-1"])
def test_it_refuses_a_pause_that_is_no_time(make_broker: Make, value: str) -> None:
    broker = make_broker(start=False, read_retry_after=value)
    broker.start(wait=False)
    assert broker.wait() == 78
