"""Space ahead of the records of a segment that is written in small rounds: zeros that are no part
of it, whenever the broker ends and whatever is copied meanwhile."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.store.directory import snapshot
from broker.store.files import gate
from tests.appliance import ROOT
from tests.inner import space_ahead_after
from tests.store import refused_calls
from tests.store.driven import Driven

ROUNDS = 40
"""More than it takes until a segment gets space ahead."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    made: list[Driven] = []

    def maker(**options: int) -> Driven:
        made.append(Driven(tmp_path, segment_size=1 << 20, **options))
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


class WithSpace(NamedTuple):
    """A queue whose only segment has space ahead of its records, which end at `end`."""

    driven: Driven
    count: int
    segment: Path
    end: int


@pytest.fixture
def with_space(make: Callable[..., Driven]) -> WithSpace:
    driven = make()
    count = publish_until_space(driven)
    (segment,) = driven.files("msgs")
    end = records_end(segment)
    assert end < segment.stat().st_size
    return WithSpace(driven, count, segment, end)


def records_end(path: Path) -> int:
    """The length of a segment without zeros; the bodies here end with an x."""
    return len(path.read_bytes().rstrip(b"\0"))


def bodies(count: int) -> list[bytes]:
    return [body(number) for number in range(count)]


def test_rounds_write_into_the_space_ahead_and_lengthen_the_file_seldom(
    with_space: WithSpace,
) -> None:
    driven, count, segment, _ = with_space
    size = segment.stat().st_size
    for number in range(count, count + ROUNDS):
        driven.publish(body(number))
        driven.sync()
    assert segment.stat().st_size == size
    assert driven.drain() == bodies(count + ROUNDS)


def test_no_space_ahead_can_be_chosen(make: Callable[..., Driven]) -> None:
    driven = make(space_ahead=0)
    for number in range(ROUNDS):
        driven.publish(body(number))
        driven.sync()
    (segment,) = driven.files("msgs")
    assert segment.stat().st_size == records_end(segment)


def test_a_kill_leaves_zeros_which_the_next_start_cuts_and_does_not_report(
    with_space: WithSpace, make: Callable[..., Driven]
) -> None:
    driven, count, segment, end = with_space
    driven.kill()
    assert end < segment.stat().st_size
    again = make()
    assert again.recover() == []
    assert segment.stat().st_size == end
    assert again.drain() == bodies(count)


def test_a_torn_record_in_the_space_ahead_is_cut_and_reported(
    with_space: WithSpace, make: Callable[..., Driven]
) -> None:
    driven, count, segment, end = with_space
    driven.kill()
    data = bytearray(segment.read_bytes())
    data[end - 20 : end] = bytes(20)
    segment.write_bytes(data)
    again = make()
    (problem,) = again.recover()
    assert "behind the last sound record" in problem
    assert again.drain() == bodies(count - 1)


def test_a_sealed_segment_gives_its_space_back(with_space: WithSpace) -> None:
    driven, count, segment, end = with_space
    large = b"y" * (1 << 20)
    driven.publish(large)
    driven.sync()
    assert segment.stat().st_size == end
    assert driven.drain() == [*bodies(count), large]


def test_a_resting_queue_gives_its_space_back_and_gets_it_again(with_space: WithSpace) -> None:
    driven, count, segment, end = with_space
    driven.queue.rest_if_idle(100.0, 1.0)
    driven.queue.rest_if_idle(200.0, 1.0)
    driven.sync()
    assert segment.stat().st_size == end
    count = publish_until_space(driven, count)
    assert driven.files("msgs") == [segment]
    assert driven.drain() == bodies(count)


def test_a_clean_stop_gives_the_space_back(
    with_space: WithSpace, make: Callable[..., Driven]
) -> None:
    driven, count, segment, end = with_space
    driven.stop()
    assert segment.stat().st_size == end
    again = make()
    assert again.recover() == []
    assert again.drain() == bodies(count)


def test_a_snapshot_has_the_records_of_its_moment_and_no_later_ones(
    with_space: WithSpace, tmp_path: Path
) -> None:
    driven, count, segment, end = with_space
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


def test_a_removed_queue_leaves_nothing_to_give_back(with_space: WithSpace, tmp_path: Path) -> None:
    driven = with_space.driven
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


def with_fallocate_refused(directory: Path, error: int) -> tuple[str, int]:
    """How large rounds failed, and how many messages there are after a restart."""
    command = [sys.executable, "-m", "tests.store.refused_calls", str(directory), str(error)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=120)
    if done.returncode == refused_calls.NO_FILTER:
        pytest.skip("no process may have its calls refused here")
    assert done.returncode == 0
    failed, count = done.stdout.split("\n", 1)
    return failed, int(count)


@pytest.mark.parametrize(
    "error",
    [errno.ENOSYS, errno.EPERM, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOSPC, errno.EDQUOT],
    ids=errno.errorcode.get,
)
def test_rounds_are_written_where_no_space_can_be_reserved(tmp_path: Path, error: int) -> None:
    every = refused_calls.ROUNDS * refused_calls.MESSAGES
    assert with_fallocate_refused(tmp_path, error) == ("None", every)


def test_a_disk_that_fails_while_space_is_reserved_ends_all_confirming(tmp_path: Path) -> None:
    failed, count = with_fallocate_refused(tmp_path, errno.EIO)
    assert failed.startswith(os.strerror(errno.EIO))
    # What was synced before; space is not asked for at once.
    assert count >= 10 * refused_calls.MESSAGES
