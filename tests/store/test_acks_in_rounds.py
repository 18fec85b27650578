"""Acks go with the rounds of others now and then, and within 200 ms in any case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inner import acks_every, ask_for_sync
from tests.store.driven import Driven

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    """A queue of three messages on disk, of which the first one is delivered."""
    before = acks_every(HOUR_NS)
    made = Driven(tmp_path)
    for number in range(3):
        made.publish(b"%d" % number)
    made.sync()
    yield made
    acks_every(before)
    made.kill()


def ack_one(driven: Driven) -> None:
    driven.settle(driven.take())


def confirm(driven: Driven) -> None:
    """A publish, and a round that begins for its confirm."""
    driven.publish(b"confirmed")
    before = driven.persister.completed
    ask_for_sync(driven.persister)
    driven.pump(lambda: driven.persister.completed > before)


def left(driven: Driven, directory: Path) -> list[bytes]:
    """What a kill leaves in the queue."""
    driven.kill()
    again = Driven(directory)
    again.recover()
    bodies = again.drain()
    again.kill()
    return bodies


def test_a_round_for_confirms_leaves_acks_to_a_later_one(driven: Driven, tmp_path: Path) -> None:
    ack_one(driven)
    confirm(driven)
    assert not driven.persister.has_written_all
    assert left(driven, tmp_path) == [b"0", b"1", b"2", b"confirmed"]


def test_a_round_has_them_when_none_had_for_a_while(driven: Driven, tmp_path: Path) -> None:
    ack_one(driven)
    acks_every(0)
    confirm(driven)
    assert left(driven, tmp_path) == [b"1", b"2", b"confirmed"]


def test_the_work_of_each_200_ms_writes_them(driven: Driven, tmp_path: Path) -> None:
    ack_one(driven)
    confirm(driven)
    driven.tick()
    assert driven.persister.has_written_all
    assert left(driven, tmp_path) == [b"1", b"2", b"confirmed"]


def test_a_reply_that_waits_for_the_disk_waits_for_them(driven: Driven, tmp_path: Path) -> None:
    ack_one(driven)
    confirm(driven)
    driven.sync()
    assert left(driven, tmp_path) == [b"1", b"2", b"confirmed"]


def test_a_clean_stop_writes_them(driven: Driven, tmp_path: Path) -> None:
    ack_one(driven)
    confirm(driven)
    driven.stop()
    again = Driven(tmp_path)
    again.recover()
    assert again.drain() == [b"1", b"2", b"confirmed"]
    again.kill()


def test_a_deleted_queue_whose_acks_wait_leaves_no_file(driven: Driven) -> None:
    ack_one(driven)
    confirm(driven)
    driven.queue.delete()
    driven.tick()
    assert not driven.directory.exists()
    assert driven.persister.has_written_all
