"""Space ahead of the records of a segment that is written in small rounds: zeros that are no part
of it, whenever the broker ends and whatever is copied meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.store.directory import snapshot
from broker.store.files import gate
from tests.inner import space_ahead_after
from tests.store.driven import Driven

ROUNDS = 40
"""More than it takes until a segment gets space ahead."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    made: list[Driven] = []

    def maker(**options: int) -> Driven:
        made.append(Driven(tmp_path, **options))
        return made[-1]

    # On a busy machine, too, whose disk takes long for each round.
    before = space_ahead_after(16, 3_600_000_000_000)
    yield maker
    space_ahead_after(*before)
    for driven in made:
        driven.kill()


def body(number: int) -> bytes:
    return b"%06d" % number + b"x" * 40


def publish_until_space(driven: Driven, first: int = 0) -> int:
    """Publishes a message a round until the segment has space ahead; returns how many there are."""
    for number in range(first, first + 20 * ROUNDS):
        driven.publish(body(number))
        driven.sync()
        if driven.files("msgs")[-1].stat().st_size > 60_000:
            return number + 1
    raise AssertionError("no space ahead")


def records_end(path: Path) -> int:
    """The length of a segment without zeros; the bodies here end with an x."""
    return len(path.read_bytes().rstrip(b"\0"))


def test_rounds_write_into_the_space_ahead_and_lengthen_the_file_seldom(
    make: Callable[..., Driven],
) -> None:
    driven = make(segment_size=1 << 20)
    count = publish_until_space(driven)
    (segment,) = driven.files("msgs")
    size = segment.stat().st_size
    for number in range(count, count + ROUNDS):
        driven.publish(body(number))
        driven.sync()
    assert segment.stat().st_size == size
    assert driven.drain() == [body(number) for number in range(count + ROUNDS)]


def test_a_kill_leaves_zeros_which_the_next_start_cuts_without_a_word(
    make: Callable[..., Driven],
) -> None:
    driven = make(segment_size=1 << 20)
    count = publish_until_space(driven)
    (segment,) = driven.files("msgs")
    driven.kill()
    end = records_end(segment)
    assert end < segment.stat().st_size
    again = make(segment_size=1 << 20)
    assert again.recover() == []
    assert segment.stat().st_size == end
    assert again.drain() == [body(number) for number in range(count)]


def test_a_torn_record_in_the_space_ahead_is_cut_and_reported(
    make: Callable[..., Driven],
) -> None:
    driven = make(segment_size=1 << 20)
    count = publish_until_space(driven)
    (segment,) = driven.files("msgs")
    driven.kill()
    data = bytearray(segment.read_bytes())
    end = records_end(segment)
    data[end - 20 : end] = bytes(20)
    segment.write_bytes(data)
    again = make(segment_size=1 << 20)
    (problem,) = again.recover()
    assert "behind the last sound record" in problem
    assert again.drain() == [body(number) for number in range(count - 1)]


def test_a_sealed_segment_gives_its_space_back(make: Callable[..., Driven]) -> None:
    driven = make(segment_size=1 << 20)
    count = publish_until_space(driven)
    (segment,) = driven.files("msgs")
    end = records_end(segment)
    large = b"y" * (1 << 20)
    driven.publish(large)
    driven.sync()
    assert segment.stat().st_size == end
    assert driven.drain() == [*(body(number) for number in range(count)), large]


def test_a_resting_queue_gives_its_space_back_and_gets_it_again(
    make: Callable[..., Driven],
) -> None:
    driven = make(segment_size=1 << 20)
    count = publish_until_space(driven)
    (segment,) = driven.files("msgs")
    driven.queue.rest_if_idle(100.0, 1.0)
    driven.queue.rest_if_idle(200.0, 1.0)
    driven.sync()
    assert segment.stat().st_size == records_end(segment)
    count = publish_until_space(driven, count)
    assert driven.files("msgs") == [segment]
    assert driven.drain() == [body(number) for number in range(count)]


def test_a_clean_stop_gives_the_space_back(make: Callable[..., Driven]) -> None:
    driven = make(segment_size=1 << 20)
    count = publish_until_space(driven)
    (segment,) = driven.files("msgs")
    driven.stop()
    assert segment.stat().st_size == records_end(segment)
    again = make(segment_size=1 << 20)
    assert again.recover() == []
    assert again.drain() == [body(number) for number in range(count)]


def test_a_snapshot_has_the_records_of_its_moment_and_no_later_ones(
    make: Callable[..., Driven], tmp_path: Path
) -> None:
    driven = make(segment_size=1 << 20)
    count = publish_until_space(driven)
    (segment,) = driven.files("msgs")
    end = records_end(segment)
    try:
        snapshot.take(str(tmp_path))
        assert segment.stat().st_size == end
        for number in range(count, count + ROUNDS):
            driven.publish(body(number))
            driven.sync()
        # Nothing is written behind records while files are copied.
        assert segment.stat().st_size == records_end(segment)
        lengths = (tmp_path / "snapshot/files").read_text()
        assert f'msgs.{1:010}", {end},' in lengths
    finally:
        snapshot.drop(str(tmp_path))
    publish_until_space(driven, count + ROUNDS)


def test_a_removed_queue_leaves_nothing_to_give_back(
    make: Callable[..., Driven], tmp_path: Path
) -> None:
    driven = make(segment_size=1 << 20)
    publish_until_space(driven)
    driven.queue.delete()
    driven.sync()
    snapshot.take(str(tmp_path))
    snapshot.drop(str(tmp_path))
    assert driven.files("msgs") == []
    gate.hold_holes(False)


def test_all_is_written_only_when_no_record_and_no_ack_waits(make: Callable[..., Driven]) -> None:
    driven = make()
    assert driven.persister.has_written_all
    driven.publish(body(1))
    assert not driven.persister.has_written_all
    driven.sync()
    assert driven.persister.has_written_all
    taken = driven.take()
    driven.sync()
    driven.settle(taken)
    assert not driven.persister.has_written_all
    driven.sync()
    assert driven.persister.has_written_all
