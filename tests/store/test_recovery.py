"""What a start makes of what it finds: damage, a kill, a disk that failed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.store.directory.data_directory import write_again
from tests.store import recorder
from tests.store.driven import Driven

SEGMENT = 65536


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    """A function that starts a queue on the test's directory, again and again."""

    def start(**options: int) -> Driven:
        return Driven(tmp_path, **{"segment_size": SEGMENT, **options})

    yield start
    for kind in ("write", "write_file"):
        recorder.fail(kind, 0, 0)
    recorder.record(False)


def body(number: int, size: int = 500) -> bytes:
    return number.to_bytes(4, "big") * (size // 4)


def fill(driven: Driven, count: int = 400, size: int = 500) -> list[bytes]:
    bodies = [body(number, size) for number in range(count)]
    for each in bodies:
        driven.publish(each)
    driven.sync()
    driven.tick()
    return bodies


# -- reading ---------------------------------------------------------------------------------------


def test_a_slow_read_beside_an_unwritten_tail_takes_nothing_for_damage(
    make: Callable[..., Driven],
) -> None:
    driven = make(segment_size=1 << 20)
    bodies = fill(driven)
    taken = [driven.take().body]
    driven.publish(b"in the tail")
    # What the page cache does not hold is read by the reader thread, which meets the file's end.
    with driven.files("msgs")[0].open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    taken += [driven.take().body for _ in bodies[1:]]
    driven.sync()
    taken.append(driven.take().body)
    assert taken == [*bodies, b"in the tail"]
    driven.stop()


# -- again and again -------------------------------------------------------------------------------


def test_acks_of_records_that_a_kill_kept_from_the_file_settle_nothing_else(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    bodies = fill(driven, 5)
    taken = [driven.take() for _ in bodies]
    driven.settle(taken[3])
    driven.tick()
    (segment,) = driven.files("msgs")
    driven.kill()
    with segment.open("r+b") as file:  # as if the last two had never been written
        file.truncate(taken[3].place[1])
    for _ in range(3):
        again = make()
        assert again.recover() == []
        assert again.drain() == bodies[:3]
        again.tick()
        again.kill()


def test_recovering_twice_is_recovering_once(make: Callable[..., Driven]) -> None:
    driven = make()
    fill(driven)
    for number in range(100):
        taker = driven.take()
        if number % 2:
            driven.settle(taker)
    driven.tick()
    driven.kill()
    seen = []
    for _ in range(3):
        again = make()
        problems = again.recover()
        contents = [
            (path.name, path.read_bytes())
            for kind in ("msgs", "acks")
            for path in again.files(kind)
        ]
        counts = (again.queue.messages_ready, again.queue.message_bytes_ready)
        seen.append((problems, contents, counts))
        again.kill()
    assert seen[0] == seen[1] == seen[2]


def test_new_messages_go_to_a_fresh_segment_after_each_recovery(
    make: Callable[..., Driven],
) -> None:
    numbers = []
    for each in range(4):
        driven = make()
        driven.recover()
        driven.publish(bytes([each]))
        driven.sync()
        numbers.append(driven.files("msgs")[-1].name)
        driven.kill()
    assert len(set(numbers)) == 4
    assert numbers == sorted(numbers)


# -- damage ----------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def quarantined(directory: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(directory.glob("quarantine/*.json"))]


def test_a_corrupt_part_inside_a_segment_goes_to_quarantine_at_recovery(
    make: Callable[..., Driven], tmp_path: Path
) -> None:
    driven = make()
    bodies = fill(driven, 20)
    (segment,) = driven.files("msgs")
    driven.kill()
    record = (segment.stat().st_size - 8) // 20
    flip(segment, 8 + 5 * record + 100)
    damaged = segment.read_bytes()[8 + 5 * record : 8 + 6 * record]
    again = make()
    (problem,) = again.recover()
    assert f"{record} bytes at position {8 + 5 * record}" in problem
    (entry,) = quarantined(tmp_path)
    assert (entry["segment"], entry["position"], entry["length"]) == (1, 8 + 5 * record, record)
    assert Path(str(entry["file"])).read_bytes() == damaged
    assert again.drain() == bodies[:5] + bodies[6:]
    again.tick()
    again.kill()
    third = make()
    assert third.recover() == []  # said once
    assert third.drain() == bodies[:5] + bodies[6:]
    third.kill()


def test_a_corrupt_part_goes_to_quarantine_when_it_is_read(
    make: Callable[..., Driven], tmp_path: Path
) -> None:
    driven = make()
    bodies = fill(driven)
    segment = driven.files("msgs")[0]
    driven.kill()
    again = make()
    assert again.recover() == []  # its summary says that it was synced
    record = len(bodies[0]) + 24 + 1 + 3
    flip(segment, 8 + 3 * record + 60)
    flip(segment, 8 + 4 * record + 60)
    assert again.queue.messages_ready == len(bodies)
    assert again.drain() == bodies[:3] + bodies[5:]
    again.tick()
    assert again.queue.messages_ready == 0
    assert again.queue.messages_unacknowledged == len(bodies) - 2
    entries = quarantined(tmp_path)
    assert [(entry["position"], entry["length"]) for entry in entries] == [
        (8 + 3 * record, 2 * record)
    ]
    assert again.persister.quarantine.count == 1
    again.kill()
    third = make()
    assert third.recover() == []
    assert third.drain() == bodies[:3] + bodies[5:]
    third.kill()


def test_a_damaged_segment_goes_when_all_that_is_left_of_it_is_settled(
    make: Callable[..., Driven],
) -> None:
    driven = make()
    bodies = fill(driven)
    segment = driven.files("msgs")[0]
    driven.kill()
    again = make()
    again.recover()
    flip(segment, 3000)
    flip(segment, 30000)
    while (taker := again.take()).body is not None:
        again.settle(taker)
    again.tick()
    assert again.queue.messages_ready == again.queue.messages_unacknowledged == 0
    assert again.queue.message_bytes_ready == again.queue.message_bytes_unacknowledged == 0
    assert not segment.exists()
    assert len(bodies) == 400
    again.kill()


@pytest.mark.parametrize("keep", [0, 3, 8, 9, 100, 20000])
def test_a_segment_that_got_shorter_while_it_was_read_ends_there(
    make: Callable[..., Driven], keep: int
) -> None:
    driven = make()
    bodies = fill(driven)
    segments = driven.files("msgs")
    driven.kill()
    again = make()
    again.recover()
    record = len(bodies[0]) + 24 + 1 + 3
    in_first = (segments[0].stat().st_size - 8) // record
    with segments[0].open("r+b") as file:
        file.truncate(keep)
    whole = max(0, keep - 8) // record
    assert again.drain() == bodies[:whole] + bodies[in_first:]
    again.kill()


def test_a_tail_with_nothing_behind_it_is_cut_at_every_byte(make: Callable[..., Driven]) -> None:
    driven = make()
    bodies = fill(driven, 4, 40)
    (segment,) = driven.files("msgs")
    driven.kill()
    data = segment.read_bytes()
    record = (len(data) - 8) // 4
    for cut in range(len(data)):
        segment.write_bytes(data[:cut])
        again = make()
        whole = max(0, cut - 8) // record
        problems = again.recover()
        assert again.drain() == bodies[:whole]
        assert bool(problems) == (whole * record + 8 < cut), cut
        again.kill()
        for path in again.directory.iterdir():
            path.unlink()


@pytest.mark.parametrize("filler", ["zeros", "random"])
def test_a_filled_tail_is_cut(make: Callable[..., Driven], filler: str, tmp_path: Path) -> None:
    driven = make()
    bodies = fill(driven, 4, 40)
    (segment,) = driven.files("msgs")
    driven.kill()
    data = segment.read_bytes()
    tail = bytes(5000) if filler == "zeros" else random.Random(3).randbytes(5000)
    segment.write_bytes(data + tail)
    again = make()
    problems = again.recover()
    # Zeros are space ahead of the records, of which nothing is lost.
    assert bool(problems) == (filler == "random")
    assert all("cut 5000 bytes" in problem for problem in problems)
    assert again.drain() == bodies
    assert segment.read_bytes() == data
    assert not (tmp_path / "quarantine").exists()
    again.kill()


def test_a_damaged_end_of_a_segment_with_another_one_behind_it_is_kept_aside(
    make: Callable[..., Driven], tmp_path: Path
) -> None:
    driven = make()
    bodies = fill(driven)
    first, *_ = driven.files("msgs")
    driven.kill()
    Path(str(first).replace("msgs", "meta")).unlink(missing_ok=True)
    data = first.read_bytes()
    record = len(bodies[0]) + 24 + 1 + 3
    in_first = (len(data) - 8) // record
    flip(first, len(data) - 1)
    damaged = first.read_bytes()[-record:]
    again = make()
    (problem,) = again.recover()
    assert f"cut {record} bytes" in problem
    assert str(tmp_path / "quarantine") in problem
    (entry,) = quarantined(tmp_path)
    assert Path(str(entry["file"])).read_bytes() == damaged
    assert again.drain() == bodies[: in_first - 1] + bodies[in_first:]
    again.kill()


def test_a_damaged_header_costs_no_message(make: Callable[..., Driven]) -> None:
    driven = make()
    bodies = fill(driven, 4)
    (segment,) = driven.files("msgs")
    driven.kill()
    flip(segment, 1)
    flip(segment, 5)
    again = make()
    (problem,) = again.recover()
    assert "4 messages were found in it" in problem
    assert again.drain() == bodies
    again.kill()


def test_damaged_acks_are_reported_and_bring_messages_back(make: Callable[..., Driven]) -> None:
    driven = make()
    bodies = fill(driven, 20)
    for _ in range(10):
        driven.settle(driven.take())
    driven.tick()
    (acks,) = driven.files("acks")
    driven.kill()
    entries = (acks.stat().st_size - 8) // 12
    flip(acks, 8 + (entries - 3) * 12 + 2)
    again = make()
    (problem,) = again.recover()
    assert "1 entries are damaged" in problem
    assert len(again.drain()) == 11
    assert len(bodies) == 20
    again.kill()


def test_unknown_files_are_reported_and_stay(make: Callable[..., Driven]) -> None:
    driven = make()
    bodies = fill(driven, 3)
    driven.kill()
    for name in ("notes.txt", "msgs.1", "msgs.old", "acks.0000000009", "x.tmp"):
        (driven.directory / name).write_bytes(b"?")
    again = make()
    problems = again.recover()
    assert len(problems) == 3
    assert all("left alone" in problem for problem in problems)
    left = {path.name for path in again.directory.iterdir()}
    assert left == {"notes.txt", "msgs.1", "msgs.old", "msgs.0000000001"}
    assert again.drain() == bodies
    again.kill()


# -- a disk that failed ----------------------------------------------------------------------------


def test_after_a_failed_sync_what_may_not_be_on_disk_is_written_into_new_files(
    make: Callable[..., Driven], tmp_path: Path
) -> None:
    driven = make()
    bodies = fill(driven)
    driven.settle(driven.take())
    driven.tick()
    before = {path.name: path.stat().st_ino for path in driven.directory.iterdir()}
    last = driven.files("msgs")[-1].name
    driven.kill()
    recorder.record(True)
    write_again(str(tmp_path))
    again = make()
    assert again.recover() == []
    after = {path.name: path.stat().st_ino for path in again.directory.iterdir()}
    assert after.keys() == before.keys()
    assert after[last] != before[last]
    assert all(after[path.name] != before[path.name] for path in again.files("acks"))
    summarised = [path.name.replace("meta", "msgs") for path in again.files("meta")]
    assert all(after[name] == before[name] for name in summarised)
    kinds = [event[0] for event in recorder.recorded() if last in (event[1] or "")]
    assert kinds.index("sync") < kinds.index("rename")
    assert again.drain() == bodies[1:]
    again.kill()
