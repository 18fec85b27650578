"""A disk that fails reads of a stream: its readers wait, and pass nothing over."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.queues.stream import StreamQueue
from broker.queues.stream_arguments import Start
from broker.server.stall import FAILING_NAME, Stall
from tests.store import recorder
from tests.store.bodies_rig import PROPERTIES, Rig

COUNT = 1000
"""Messages of 1 KB: several read buffers, in three segments."""


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    recorder.fail("read", 0, 0)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def stream_of(rig: Rig) -> StreamQueue:
    stream = StreamQueue(
        rig.turn,
        rig.persister,
        f"{rig.path}/queues",
        "/",
        "s",
        (1 << 32) + 500,
        arguments={"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 400_000},
    )
    stream.later = lambda seconds, callback: callback()
    return stream


def restarted(path: Path) -> tuple[Rig, StreamQueue, Clock]:
    """A stream whose messages are on disk, and nothing of them in memory."""
    rig = Rig(path / "data", queues=0)
    stream = stream_of(rig)
    for number in range(COUNT):
        stream.put(b"", b"k", PROPERTIES, number.to_bytes(4) + bytes(996), True)
    rig.settle()
    rig.stop()
    rig.start()
    stream = stream_of(rig)
    assert stream.recover() == []
    clock = Clock()
    rig.persister.failed_reads.now = clock
    return rig, stream, clock


def until(rig: Rig, done: Callable[[], bool]) -> None:
    """Runs what the loop would; the reading thread may be slow."""
    deadline = time.monotonic() + 30
    while not done():
        rig.settle()
        assert time.monotonic() < deadline


def alarms(rig: Rig) -> list[dict[str, str]]:
    broker: Any = SimpleNamespace(persister=rig.persister)
    return Stall(broker).rows()


@pytest.mark.parametrize("start", [Start("first"), Start("offset", 395), Start("time", 0)])
def test_a_failed_read_passes_no_message_of_a_stream_over(tmp_path: Path, start: Start) -> None:
    """The search for an offset reads too: on its way from the last known place to the offset."""
    rig, stream, clock = restarted(tmp_path)
    reads = rig.persister.failed_reads
    rows: list[Any] = []
    answers: list[int] = []

    def done(found: list[Any]) -> None:
        rows.extend(found)
        answers.append(len(found))

    recorder.fail("read", -1, errno.EIO)
    stream.browse(start, 2 * COUNT, 1 << 30, done)
    until(rig, lambda: reads.waiting == 1)
    for _ in range(3):
        # Nobody asks again before the pause is over.
        rig.settle()
    assert (reads.count, answers) == (1, [])
    (alarm,) = alarms(rig)
    assert alarm["name"] == FAILING_NAME
    assert stream.store.directory in alarm["text"]
    clock.seconds += 1
    until(rig, lambda: reads.count == 2)
    recorder.fail("read", 0, 0)
    clock.seconds += 1
    until(rig, lambda: answers != [])
    assert [row[0] for row in rows] == list(range(start.value, COUNT))
    assert all(row[5] == row[0].to_bytes(4) + bytes(996) for row in rows)
    assert stream.stream_figures()["unreadable_bytes"] == 0
    assert rig.persister.quarantine.count == 0
    clock.seconds += 1
    rig.settle()
    assert alarms(rig) == []
    stream.close()
    rig.stop()


def test_retention_goes_on_where_a_reader_waits_for_the_disk(tmp_path: Path) -> None:
    rig, stream, clock = restarted(tmp_path)
    reads = rig.persister.failed_reads
    answers: list[list[Any]] = []
    recorder.fail("read", -1, errno.EIO)
    stream.browse(Start("first"), 2 * COUNT, 1 << 30, answers.append)
    until(rig, lambda: reads.waiting == 1)
    stream.put(b"", b"k", PROPERTIES, b"new", True)
    rig.settle()
    stream.reconfigure({"x-max-length-bytes": 400_000})
    until(rig, lambda: stream.segments == 2)
    recorder.fail("read", 0, 0)
    clock.seconds += 1
    until(rig, lambda: answers != [])
    offsets = [row[0] for row in answers[0]]
    assert offsets == list(range(stream.store.first_offset, COUNT + 1))
    assert 0 < offsets[0] < COUNT
    stream.close()
    rig.stop()


def test_a_stream_may_be_deleted_where_a_reader_waits_for_the_disk(tmp_path: Path) -> None:
    rig, stream, clock = restarted(tmp_path)
    reads = rig.persister.failed_reads
    answers: list[list[Any]] = []
    recorder.fail("read", 1, errno.EIO)
    stream.browse(Start("first"), 2 * COUNT, 1 << 30, answers.append)
    until(rig, lambda: reads.waiting == 1)
    directory = Path(stream.store.directory)
    stream.delete()
    until(rig, lambda: not directory.exists())
    clock.seconds += 1
    rig.settle()
    assert (reads.waiting, answers) == (0, [[]])
    rig.stop()
