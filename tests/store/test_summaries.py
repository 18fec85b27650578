"""Summaries of a queue's segments: what they spare a start, and when they are not believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.store import recorder
from tests.store.driven import Driven
from tests.store.test_recovery import body, fill


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    """A function that starts a queue on the test's directory, again and again."""

    def start() -> Driven:
        return Driven(tmp_path)

    yield start
    recorder.record(False)


def reads(kind: str) -> int:
    """How many files of a kind were read whole since the recording began."""
    events = recorder.recorded()
    return sum(event[0] == "read" and f"/{kind}." in (event[1] or "") for event in events)


def test_sealed_segments_are_recovered_from_their_summaries(make: Callable[..., Driven]) -> None:
    driven = make()
    bodies = fill(driven)
    summarised = {path.suffix for path in driven.files("meta")}
    segments = driven.files("msgs")
    assert summarised == {path.suffix for path in segments[:-1]}
    driven.kill()
    again = make()
    recorder.record(True)
    assert again.recover() == []
    assert reads("msgs") == 1  # the one that was being written
    assert again.queue.messages_ready == len(bodies)
    assert again.queue.message_bytes_ready == sum(map(len, bodies))
    assert again.drain() == bodies
    again.kill()


def test_a_summary_and_the_acks_are_exact_together(make: Callable[..., Driven]) -> None:
    driven = make()
    bodies = fill(driven)
    for number in range(150):
        taker = driven.take()
        if number % 3:
            driven.settle(taker)
    driven.tick()
    left = [each for number, each in enumerate(bodies) if number >= 150 or number % 3 == 0]
    driven.kill()
    again = make()
    recorder.record(True)
    assert again.recover() == []
    assert reads("msgs") == 1
    assert again.queue.messages_ready == len(left)
    assert again.queue.message_bytes_ready == sum(map(len, left))
    assert again.drain() == left
    again.kill()


def test_records_of_different_overhead_are_counted_one_by_one(make: Callable[..., Driven]) -> None:
    driven = make()
    for number in range(400):
        driven.queue.put(b"", b"k" * (number % 7), b"\x10\x00\x02", body(number), True)
    driven.sync()
    driven.tick()
    for _ in range(10):
        driven.settle(driven.take())
    driven.tick()
    driven.kill()
    again = make()
    recorder.record(True)
    assert again.recover() == []
    assert reads("msgs") == 2  # the last one, and the first, of which something is settled
    assert again.queue.messages_ready == 390
    assert again.queue.message_bytes_ready == sum(len(body(number)) for number in range(10, 400))
    again.kill()


@pytest.mark.parametrize("wrong", ["flipped", "short", "gone", "of a longer file"])
def test_a_summary_that_does_not_fit_is_not_believed(
    make: Callable[..., Driven], wrong: str
) -> None:
    driven = make()
    bodies = fill(driven)
    first = driven.files("meta")[0]
    driven.kill()
    data = bytearray(first.read_bytes())
    if wrong == "flipped":
        data[9] ^= 1
        first.write_bytes(data)
    elif wrong == "short":
        first.write_bytes(data[:-1])
    elif wrong == "gone":
        first.unlink()
    else:
        segment = first.with_name(first.name.replace("meta", "msgs"))
        cut = segment.read_bytes()
        segment.write_bytes(cut[:-10])
        bodies = [each for each in bodies if each != last_of(cut)]
    again = make()
    recorder.record(True)
    problems = again.recover()
    assert bool(problems) == (wrong == "of a longer file")
    assert reads("msgs") == 2
    assert again.drain() == bodies
    again.tick()
    assert first.exists()
    again.kill()


def test_a_summary_is_not_believed_beside_the_ack_of_a_record_that_is_not_there(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    bodies = fill(driven)
    meta = driven.files("meta")[0]
    segment = meta.with_name(meta.name.replace("meta", "msgs"))
    content = segment.read_bytes()
    while (taker := driven.take()).body != last_of(content):
        pass
    driven.settle(taker)
    driven.tick()
    driven.kill()
    # As if a kill had prevented the record, behind its ack; the next start writes a summary.
    record = content.index(bodies[1]) - content.index(bodies[0])
    segment.write_bytes(content[:-record])
    meta.unlink()
    left = [each for each in bodies if each != taker.body]
    for read in (2, 1):  # the last segment, too, has a summary then
        again = make()
        recorder.record(True)
        assert again.recover() == []
        assert reads("msgs") == read
        assert again.queue.messages_ready == len(left)
        again.tick()
        assert meta.exists()
        again.kill()


def last_of(segment: bytes) -> bytes:
    """The last body of a segment of these tests."""
    return segment[-500:]


def test_expirations_are_known_from_summaries(make: Callable[..., Driven]) -> None:
    driven = make()
    properties = b"\x11\x00\x02\x0560000"
    for number in range(400):
        driven.queue.put(b"", b"q", properties, body(number), True)
    driven.sync()
    driven.tick()
    last = driven.files("msgs")[-1]
    driven.kill()
    last.unlink()
    again = make()
    recorder.record(True)
    again.recover()
    assert reads("msgs") == 0
    again.queue.wake()
    again.pump(lambda: bool(again.timers))
    assert again.timers == [pytest.approx(60, abs=10)]
    again.kill()
