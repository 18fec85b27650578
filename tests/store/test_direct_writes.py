"""Small rounds that are written with direct I/O beside the loop: the same bytes as the writing
thread's, whoever reads them, and whatever comes between."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.store.commit.sync_method import ALL, EACH
from broker.store.directory import snapshot
from broker.store.files import gate
from tests.inner import ask_for_write, copied_past_caches, space_ahead_after
from tests.store.driven import INCARNATION, PROPERTIES, Driven
from tests.store.test_open_files import queues

ROUNDS = 200
"""Enough for the zeros ahead to be used up and to come again."""

UNTIL_SPACE = 20
"""Rounds after which a segment has space ahead."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    made: list[Driven] = []

    def maker(**options: Any) -> Driven:
        made.append(Driven(tmp_path, **{"segment_size": 1 << 20, "direct_files": 4096, **options}))
        return made[-1]

    before = space_ahead_after(16, 3_600_000_000_000)
    gate.hold_holes(False)
    yield maker
    space_ahead_after(*before)
    for driven in made:
        driven.kill()


def body(number: int, size: int = 40) -> bytes:
    return b"%06d" % number + b"x" * size


def publish(driven: Driven, numbers: range, size: int = 40) -> list[bytes]:
    """A message a round. Returns their bodies."""
    for number in numbers:
        driven.publish(body(number, size))
        driven.sync()
    return [body(number, size) for number in numbers]


def publish_large(driven: Driven, bodies: list[bytes], *, are_taken: bool = True) -> None:
    """A round, of which a consumer has all messages before it is written, if they `are_taken`."""
    for one in bodies:
        driven.publish(one)
        if are_taken:
            driven.queue.store.keep = True
            driven.take()
    driven.sync()


def direct_rounds(driven: Driven) -> int:
    """How many rounds were written so. Skips the test where the system cannot."""
    rounds = driven.persister.direct.rounds
    if not driven.persister.direct.files:
        pytest.skip("the file system of the tests has no direct I/O that does not wait")
    if not rounds and not open_for_direct(driven.files("msgs")[-1]):
        pytest.skip("this process may not use asynchronous I/O, or not open files for direct I/O")
    return rounds


def open_for_direct(segment: Path) -> list[int]:
    """Descriptors of this process that are open for direct I/O on a segment, removed or not."""
    found = []
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            info = Path(f"/proc/self/fdinfo/{place.name}").read_text()
            flags = int(info.split("flags:")[1].split()[0], 8)
            if flags & os.O_DIRECT and str(place.readlink()).startswith(str(segment)):
                found.append(int(place.name))
    return found


def is_synced_at_once(place: Path) -> bool:
    """Whether a sync of one file of this file system has the disk write what it has of all."""
    kind = ["stat", "--file-system", "--format", "%T", str(place)]
    return subprocess.check_output(kind, text=True).strip() in ("ext2/ext3", "xfs")


def test_small_rounds_need_no_thread_and_a_kill_leaves_all_of_them(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    sent = publish(driven, range(ROUNDS))
    assert direct_rounds(driven) > ROUNDS - 2 * UNTIL_SPACE
    driven.kill()
    again = make()
    assert again.recover() == []
    assert again.drain() == sent


def test_long_rounds_between_short_ones_find_room_as_well(make: Callable[..., Driven]) -> None:
    driven = make(segment_size=16 << 20)
    sent = []
    for number in range(ROUNDS):
        sent += publish(driven, range(number, number + 1), 50_000 if number % 2 else 40)
    assert direct_rounds(driven) > ROUNDS - UNTIL_SPACE - ROUNDS // 6
    driven.kill()
    again = make(segment_size=16 << 20)
    assert again.recover() == []
    assert again.drain() == sent


@pytest.mark.parametrize("size", [0, 1, 1000, 3000, 4040, 9000, 16_000])
def test_records_of_any_length_lie_where_the_thread_would_have_put_them(
    make: Callable[..., Driven], size: int
) -> None:
    driven = make()
    count = 4 * UNTIL_SPACE
    sent = publish(driven, range(count), size)
    direct_rounds(driven)
    written = b"".join(segment.read_bytes() for segment in driven.files("msgs"))
    assert [written.count(each) for each in sent] == [1] * count
    driven.stop()
    again = make()
    assert again.recover() == []
    assert again.drain() == sent


@pytest.mark.parametrize("offset", [0, 1, 16, 63])
@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 4159, 4160, 70_001])
def test_copies_for_the_disk_are_complete_and_leave_what_is_beside_them(
    offset: int, length: int
) -> None:
    data = bytes(number * 7 % 251 for number in range(length))
    assert copied_past_caches(data, offset) == b"\x7f" + data + b"\x7f"


def test_what_the_page_cache_has_of_the_file_is_never_older_than_the_file(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    sent = publish(driven, range(UNTIL_SPACE))
    (segment,) = driven.files("msgs")
    for number in range(UNTIL_SPACE, ROUNDS):
        segment.read_bytes()  # now the page cache has all of it, the zeros too
        sent += publish(driven, range(number, number + 1))
        assert sent[-1] in segment.read_bytes()
    direct_rounds(driven)
    assert driven.drain() == sent


def test_queues_that_are_written_in_one_round_are_each_complete(
    make: Callable[..., Driven], tmp_path: Path
) -> None:
    driven = make()
    others = queues(driven, 4)[1:]  # the first has the directory of the driven one
    for number in range(ROUNDS):
        driven.publish(body(number))
        for queue in others[: number % 4]:
            queue.put(b"", b"q", PROPERTIES, body(number), True)
        driven.sync()
    assert direct_rounds(driven) > ROUNDS // 4
    driven.kill()
    for place, queue in enumerate([driven.queue, *others]):
        again = Driven(tmp_path, 1 << 20, INCARNATION + place)
        assert again.recover() == [], queue
        wanted = [body(number) for number in range(ROUNDS) if number % 4 >= place]
        assert again.drain() == wanted
        again.kill()


def test_acks_and_large_rounds_between_go_to_the_thread_and_all_is_there(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    sent = publish(driven, range(UNTIL_SPACE))
    for number in range(UNTIL_SPACE, ROUNDS):
        if number % 7 == 0:
            for _ in range(300):
                driven.publish(body(number, 100))
                sent.append(body(number, 100))
        if number % 5 == 0:
            taken = driven.take()
            assert taken.body == sent.pop(0)
            driven.settle(taken)
        sent += publish(driven, range(number, number + 1))
    assert direct_rounds(driven) > 0
    driven.kill()
    again = make()
    assert again.recover() == []
    assert again.drain() == sent


@pytest.mark.parametrize("size", [100_000, 160_000, 200_000, 900_000, 2_500_000])
def test_large_rounds_fill_one_segment_after_the_other(
    make: Callable[..., Driven], size: int
) -> None:
    driven = make(segment_size=4 << 20)
    sent = []
    for number in range(3 * UNTIL_SPACE):
        bodies = [body(100 * number + part, 10_000) for part in range(size // 10_000)]
        publish_large(driven, bodies)
        sent += bodies
    direct_rounds(driven)
    assert len(driven.files("msgs")) > 1
    assert open_for_direct(driven.files("msgs")[-1])
    assert not open_for_direct(driven.files("msgs")[0])
    driven.kill()
    again = make(segment_size=4 << 20)
    assert again.recover() == []
    assert again.drain() == sent


def test_a_segment_that_begins_with_the_rest_of_a_long_round_has_space_for_long_ones(
    make: Callable[..., Driven],
) -> None:
    driven = make(segment_size=4 << 20)
    round_bytes = 20 * 10_000
    while len(driven.files("msgs")) < 2:
        publish_large(driven, [body(number, 10_000) for number in range(20)])
    direct_rounds(driven)
    segment = driven.files("msgs")[-1]
    records_end = len(segment.read_bytes().rstrip(b"\0"))
    assert records_end < round_bytes // 2
    assert segment.stat().st_size > records_end + 10 * round_bytes


def test_large_rounds_that_consumers_read_from_the_file_go_through_the_page_cache(
    make: Callable[..., Driven],
) -> None:
    driven = make(segment_size=64 << 20)
    bodies = [body(number, 10_000) for number in range(20)]
    for _ in range(UNTIL_SPACE):
        publish_large(driven, bodies, are_taken=False)
    (segment,) = driven.files("msgs")
    assert not open_for_direct(segment)
    assert driven.drain() == bodies * UNTIL_SPACE
    # They have caught up.
    publish_large(driven, bodies)
    direct_rounds(driven)
    assert open_for_direct(segment)


def test_what_a_round_left_unsynced_is_synced_by_the_thread(make: Callable[..., Driven]) -> None:
    driven = make()
    publish(driven, range(2 * UNTIL_SPACE))
    before = direct_rounds(driven)
    driven.publish(b"unsynced")
    completed = driven.persister.completed
    ask_for_write(driven.persister)
    driven.pump(lambda: driven.persister.completed > completed)
    publish(driven, range(1))
    assert driven.persister.direct.rounds == before
    publish(driven, range(1))
    assert driven.persister.direct.rounds == before + 1


def test_none_is_written_so_where_no_file_may_be_open_for_it(make: Callable[..., Driven]) -> None:
    driven = make(direct_files=0)
    publish(driven, range(2 * UNTIL_SPACE))
    assert driven.persister.direct.rounds == 0
    assert open_for_direct(driven.files("msgs")[0]) == []


def test_a_resting_queue_and_a_full_segment_keep_no_descriptor(make: Callable[..., Driven]) -> None:
    driven = make()
    publish(driven, range(2 * UNTIL_SPACE))
    direct_rounds(driven)
    (segment,) = driven.files("msgs")
    assert len(open_for_direct(segment)) == 1
    driven.queue.rest_if_idle(100.0, 1.0)
    driven.queue.rest_if_idle(200.0, 1.0)
    driven.sync()
    assert open_for_direct(segment) == []
    publish(driven, range(2 * UNTIL_SPACE, 4 * UNTIL_SPACE))
    assert len(open_for_direct(segment)) == 1
    driven.publish(b"y" * (1 << 20))
    driven.sync()
    assert open_for_direct(segment) == []


def test_a_removed_queue_keeps_no_descriptor(make: Callable[..., Driven]) -> None:
    driven = make()
    publish(driven, range(2 * UNTIL_SPACE))
    (segment,) = driven.files("msgs")
    driven.queue.delete()
    driven.sync()
    driven.tick()
    assert open_for_direct(segment) == []


def test_a_write_that_the_kernel_refuses_ends_all_confirming(make: Callable[..., Driven]) -> None:
    driven = make()
    publish(driven, range(2 * UNTIL_SPACE))
    direct_rounds(driven)
    (descriptor,) = open_for_direct(driven.files("msgs")[0])
    with Path(os.devnull).open() as read_only:
        os.dup2(read_only.fileno(), descriptor)
    driven.publish(b"lost")
    driven.sync()
    assert driven.failed is not None
    assert "Bad file descriptor in write" in driven.failed


def refuse_direct_writes(segment: Path) -> None:
    """The next one fails with EINVAL, as where the disk has larger blocks: its descriptor is that
    of a file which takes nothing but a number."""
    (descriptor,) = open_for_direct(segment)
    with Path("/proc/self/oom_score_adj").open("w") as numbers:
        os.dup2(numbers.fileno(), descriptor)


def test_small_rounds_go_through_the_page_cache_where_direct_writes_are_refused(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    sent = publish(driven, range(2 * UNTIL_SPACE))
    before = direct_rounds(driven)
    (segment,) = driven.files("msgs")
    refuse_direct_writes(segment)
    sent += publish(driven, range(2 * UNTIL_SPACE, ROUNDS))
    assert driven.failed is None
    assert driven.persister.direct.rounds == before
    assert not open_for_direct(segment)
    driven.kill()
    again = make()
    assert again.recover() == []
    assert again.drain() == sent


def test_large_rounds_go_through_the_page_cache_where_direct_writes_are_refused(
    make: Callable[..., Driven],
) -> None:
    driven = make(segment_size=64 << 20)
    bodies = [body(number, 10_000) for number in range(20)]
    for _ in range(UNTIL_SPACE):
        publish_large(driven, bodies)
    direct_rounds(driven)
    (segment,) = driven.files("msgs")
    refuse_direct_writes(segment)
    for _ in range(3 * UNTIL_SPACE):
        publish_large(driven, bodies)
        # It is not tried again, which would write each round twice.
        assert not open_for_direct(segment)
    assert driven.failed is None
    driven.kill()
    again = make(segment_size=64 << 20)
    assert again.recover() == []
    assert again.drain() == 4 * UNTIL_SPACE * bodies


@pytest.mark.parametrize("refused", range(4))
def test_one_of_several_writes_that_the_kernel_refuses_ends_all_confirming(
    make: Callable[..., Driven], tmp_path: Path, refused: int
) -> None:
    driven = make()
    several = [driven.queue, *queues(driven, 4)[1:]]

    def publish_to_each(text: bytes) -> None:
        for queue in several:
            queue.put(b"", b"q", PROPERTIES, text, True)
        driven.sync()

    for number in range(2 * UNTIL_SPACE):
        publish_to_each(body(number))
    before = direct_rounds(driven)
    if not is_synced_at_once(tmp_path):
        pytest.skip("each file has to be synced here: such a round is the thread's")
    publish_to_each(b"in one round")
    assert driven.persister.direct.rounds == before + 1
    segments = sorted(tmp_path.rglob("msgs.*"))
    (descriptor,) = open_for_direct(segments[refused])
    with Path(os.devnull).open() as read_only:
        os.dup2(read_only.fileno(), descriptor)
    publish_to_each(b"lost")
    assert driven.failed is not None
    assert "Bad file descriptor in write" in driven.failed
    assert str(segments[refused]) in driven.failed
    driven.kill()
    for place in range(4):
        again = Driven(tmp_path, 1 << 20, INCARNATION + place)
        assert again.recover() == []
        sent = [body(number) for number in range(2 * UNTIL_SPACE)] + [b"in one round"]
        assert again.drain()[: len(sent)] == sent
        again.kill()


@pytest.mark.parametrize(("method", "count", "direct"), [(EACH, 1, 1), (EACH, 2, 0), (ALL, 1, 0)])
def test_a_set_sync_method_is_kept_to(
    make: Callable[..., Driven], method: str, count: int, direct: int
) -> None:
    """A synced write is the fdatasync of its file; one sync for several files is none of each."""
    driven = make(sync_method=method)
    several = [driven.queue, *queues(driven, count)[1:]]
    for number in range(2 * UNTIL_SPACE):
        for queue in several:
            queue.put(b"", b"q", PROPERTIES, body(number), True)
        driven.sync()
    if direct:
        assert direct_rounds(driven)
    else:
        assert driven.persister.direct.rounds == 0


def test_snapshots_taken_meanwhile_end_with_a_whole_record(
    make: Callable[..., Driven], tmp_path: Path
) -> None:
    driven = make()
    publish(driven, range(2 * UNTIL_SPACE))
    (segment,) = driven.files("msgs")
    record = segment.read_bytes().index(b"000001xx") - segment.read_bytes().index(b"000000xx")
    over = threading.Event()
    ends: list[int] = []

    def take() -> None:
        try:
            for _ in range(30):
                snapshot.take(str(tmp_path))
                (line,) = [
                    line
                    for line in (tmp_path / "snapshot/files").read_text().splitlines()
                    if segment.name in line
                ]
                ends.append(int(line.split(", ")[1]))
                snapshot.drop(str(tmp_path))
        finally:
            over.set()

    taking = threading.Thread(target=take)
    taking.start()
    number = 2 * UNTIL_SPACE
    while not over.is_set():
        publish(driven, range(number, number + 1))
        number += 1
    taking.join()
    assert len(ends) == 30
    assert all((end - 8) % record == 0 for end in ends)
    assert ends == sorted(ends)
    assert driven.drain() == [body(each) for each in range(number)]
