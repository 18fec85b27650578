"""What is sound behind damage is found: all of it, nothing else, and in the time of a read,
whatever bytes clients chose to stand there."""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.kernel.checksum import crc32c, seed_of
from broker.store.bodies.file import header, scan
from broker.store.commit.persister import Persister
from broker.store.directory import journal
from broker.store.files.sound_search import damaged_stretch
from tests.inner import body_record
from tests.oracles.segment_files import Record
from tests.store.bodies_rig import PROPERTIES, Rig, Taken
from tests.store.driven import Driven, Taker, ready

INCARNATION = 3 << 32 | 5
SEGMENT = 7


def is_sound(data: bytes, at: int, first: int) -> bool:
    """The plain check of the record at a place."""
    if len(data) - at < 24:
        return False
    length, check, _, flags, x, k, _, b = struct.unpack_from("<IIqBBBBI", data, at)
    if length < 22 or length + 4 > len(data) - at:
        return False
    if 24 + x + k + 2 + b + (16 if flags & 2 else 0) > length + 4:
        return False
    seed = seed_of(INCARNATION, SEGMENT, first + at)
    return crc32c(data[at + 8 : at + 4 + length], seed) == check


def pieces(generator: random.Random, first: int) -> Iterator[bytes]:
    """Records of all sizes, damaged and sound ones, and bytes that look like them."""
    at = first
    for _ in range(generator.randrange(2, 12)):
        size = generator.choice((0, 30, 500, 511, 512, 513, 3000, 70_000, 300_000))
        piece = Record(
            at, 1, generator.choice((0, 8)), b"x", b"k", PROPERTIES, generator.randbytes(size)
        ).encode(INCARNATION, SEGMENT)
        kind = generator.randrange(5)
        if kind == 0:
            changed = bytearray(piece)
            changed[generator.randrange(len(piece))] ^= 1 << generator.randrange(8)
            piece = bytes(changed)
        elif kind == 1:
            piece = generator.randbytes(generator.randrange(300))
        elif kind == 2:
            piece = struct.pack("<IIqBBBBI", generator.randrange(22, 200_000), 0, *[0] * 6) * 20
        elif kind == 3:
            # A sound record of another place.
            piece = Record(at + 1, 1, 0, b"", b"", PROPERTIES, b"").encode(INCARNATION, SEGMENT)
        yield piece
        at += len(piece)


@pytest.mark.parametrize("seed", range(60))
def test_it_finds_what_a_plain_search_finds(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    first = generator.choice((8, 100, 5000))
    data = b"".join(pieces(generator, first))
    path = tmp_path / "msgs.0000000007"
    path.write_bytes(bytes(first) + data)
    sound = [at for at in range(len(data)) if is_sound(data, at, first)]
    places = {0, *generator.choices(range(len(data)), k=4), *sound[-1:]}
    for at in places:
        limit = generator.randrange(at, len(data)) + 1
        expected = next((each for each in sound if at <= each < limit), limit)
        end = first + len(data)
        length, content = damaged_stretch(
            str(path), INCARNATION, SEGMENT, first + at, first + limit, end
        )
        assert length == expected - at
        assert content == data[at:expected]


def test_a_file_that_is_shorter_than_it_was_has_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "msgs.0000000007"
    path.write_bytes(bytes(100))
    assert damaged_stretch(str(path), INCARNATION, SEGMENT, 8, 5000, 9000) == (4992, bytes(92))


# -- time ------------------------------------------------------------------------------------------

SIZE = 4 << 20
SECONDS = 4.0
"""Of the processor, for 4 MiB: it takes half a second; one sum for each head took 20 and more."""


def begins(head: bytes) -> bytes:
    """So many of these that each can claim half of them all."""
    return head * (SIZE // len(head))


def recovered(directory: Path) -> object:
    """A kill has torn the one message of a queue."""
    driven = Driven(directory)
    driven.publish(begins(struct.pack("<IIqBBBBI", SIZE // 2, 0, *[0] * 6)))
    driven.sync()
    (segment,) = driven.files("msgs")
    driven.kill()
    os.truncate(segment, segment.stat().st_size - 4096)
    again = Driven(directory)
    problems = again.recover()
    again.kill()
    return problems


def bodies(_: Path) -> object:
    return scan(header(1, 1) + begins(struct.pack("<II16s", SIZE // 2, 0, b"\1" * 16)), INCARNATION)


def entries(_: Path) -> object:
    return journal.sound_entries(journal.MAGIC + begins(struct.pack("<II", SIZE // 2, 0)))


@pytest.mark.parametrize("reading", [recovered, bodies, entries])
def test_heads_that_claim_all_that_follows_cost_no_time(
    tmp_path: Path, reading: Callable[[Path], object]
) -> None:
    before = time.process_time()
    assert reading(tmp_path)
    assert time.process_time() - before < SECONDS


def test_what_is_sound_behind_such_heads_is_found(tmp_path: Path) -> None:
    body = body_record(b"\1" * 16, b"sound" * 1000, INCARNATION)
    rows, gaps, problems = scan(
        header(1, 1) + struct.pack("<II16s", 10_000, 0, b"\1" * 16) * 300 + body, INCARNATION
    )
    assert struct.unpack("<16sII", rows) == (b"\1" * 16, 16 + 24 * 300, len(body))
    assert (gaps, problems) == ([(16, 24 * 300)], [])
    entry = journal.encode(b"sound" * 1000)
    assert journal.sound_entries(
        journal.MAGIC + struct.pack("<II", 2000, 0) * 300 + entry + journal.encode(b"")
    ) == ([b"sound" * 1000, b""], 8 * 300)


# -- while the broker runs -------------------------------------------------------------------------


class Held:
    """Holds the thread that searches until `release`."""

    def __init__(self, persister: Persister) -> None:
        self._event = threading.Event()
        persister.collecting.submit(self._event.wait, lambda _result, _error: None)

    def release(self) -> None:
        self._event.set()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def started(directory: Path, bodies: list[bytes], **options: object) -> Driven:
    """A queue that has these messages on disk and nothing in memory."""
    driven = Driven(directory, **{"segment_size": 8 << 20, **options})  # type: ignore[arg-type]
    for body in bodies:
        driven.publish(body)
    driven.sync()
    driven.kill()
    again = Driven(directory, **{"segment_size": 8 << 20, **options})  # type: ignore[arg-type]
    assert again.recover() == []
    return again


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}], ids=["plain", "priorities"])
def test_a_large_message_behind_a_damaged_one_is_delivered(
    tmp_path: Path, arguments: dict[str, int]
) -> None:
    large = random.Random(1).randbytes(300_000)
    driven = started(tmp_path, [b"damaged" * 20, large, b"last"], arguments=arguments)
    flip(driven.files("msgs")[0], 60)
    assert driven.drain() == [large, b"last"]
    assert driven.queue.messages_ready == 0
    driven.kill()


def test_what_was_settled_behind_a_damaged_message_stays_settled(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    for number in range(3):
        driven.publish(b"%d" % number * 100)
    driven.sync()
    driven.take()
    driven.settle(driven.take())
    driven.sync()
    driven.kill()
    again = Driven(tmp_path)
    assert again.recover() == []
    flip(again.files("msgs")[0], 60)
    assert again.drain() == [b"2" * 100]
    assert (again.queue.messages_ready, again.queue.messages_unacknowledged) == (0, 1)
    again.kill()


def turns(rig: Rig, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    threads = {thread.event_fd: work for thread, work in rig.persister.threads.items()}
    while not done():
        assert time.monotonic() < deadline
        rig.turn.run()
        for fd in ready(threads, 0.01):
            threads[fd]()


def test_the_loop_goes_on_while_a_thread_searches(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", queues=2)
    for body in (b"damaged" * 20, b"next"):
        rig.publish(body, [0])
        rig.publish(body, [1])
    rig.settle()
    rig.restart()
    flip(next((rig.path / "queues").glob("*64/msgs.*")), 60)
    held = Held(rig.persister)
    one, other = Taken(), Taken()
    rig.queues[0].get(one)
    turns(rig, lambda: rig.persister.collecting.open == 2)
    rig.queues[1].get(other)
    turns(rig, lambda: other.answered)
    assert other.body == b"damaged" * 20
    assert not one.answered
    held.release()
    turns(rig, lambda: one.answered)
    assert one.body == b"next"
    rig.stop()


def searching(driven: Driven) -> Taker:
    """A get that waits for the thread."""
    taker = Taker()
    driven.queue.get(taker)
    driven.pump(lambda: driven.persister.collecting.open == 2)
    assert not taker.done
    return taker


@pytest.mark.parametrize("end", ["purge", "delete"])
def test_a_queue_may_go_while_a_thread_searches_in_it(tmp_path: Path, end: str) -> None:
    driven = started(tmp_path, [b"damaged" * 20, b"next"])
    flip(driven.files("msgs")[0], 60)
    held = Held(driven.persister)
    taker = searching(driven)
    if end == "purge":
        driven.queue.purge()
        driven.publish(b"new")
    else:
        driven.queue.delete()
    held.release()
    driven.pump(lambda: driven.persister.collecting.open == 0)
    if end == "purge":
        driven.pump(lambda: taker.done)
        assert taker.body == b"new"
        driven.sync()
    else:
        assert taker.done
        driven.tick()
        driven.pump(lambda: not driven.directory.exists())
    driven.kill()


def test_a_read_that_was_wrong_once_costs_no_message(tmp_path: Path) -> None:
    driven = started(tmp_path, [b"sound" * 20, b"next"])
    (segment,) = driven.files("msgs")
    flip(segment, 60)
    held = Held(driven.persister)
    taker = searching(driven)
    flip(segment, 60)
    held.release()
    driven.pump(lambda: taker.done)
    assert taker.body == b"sound" * 20
    assert driven.drain() == [b"next"]
    assert driven.persister.quarantine.count == 0
    driven.kill()
