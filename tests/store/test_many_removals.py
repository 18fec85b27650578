"""Very many removals that end at once: the loop has its turn between them."""

from __future__ import annotations

import contextlib
import select
from pathlib import Path

from tests.store import recorder
from tests.store.driven import Driven

MANY = 20_000


def test_removals_are_taken_back_in_slices_until_none_is_left(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    persister = driven.persister
    for _ in range(MANY):
        persister.background.write_files(str(tmp_path / "many"), {})
    remover = persister.background.remover
    # All have ended before the first is taken back.
    remover.stop()
    assert remover.open == MANY
    ready = select.poll()
    ready.register(remover.event_fd, select.POLLIN)
    turns = 0
    while remover.open:
        assert ready.poll(0), f"{remover.open} are left and no turn asks for them"
        persister.threads[remover]()
        turns += 1
    assert turns > 1
    told: list[bool] = []
    persister.after_round(lambda: told.append(True))
    driven.pump(lambda: bool(told))


def deleted_and_open(directory: Path) -> list[str]:
    """Files of a directory that are removed, and that this process still has open."""
    links = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one of this loop
            links.append(str(each.readlink()))
    return [link for link in links if link.startswith(str(directory)) and "(deleted)" in link]


def test_the_thread_that_removes_a_segment_closes_it(tmp_path: Path) -> None:
    """The last close frees what the kernel has of it: 6 to 9 ms of the loop for a segment."""
    driven = Driven(tmp_path, segment_size=4096)
    remover = driven.persister.background.remover
    for _ in range(200):
        driven.publish(bytes(100))
    driven.sync()
    segments = len(driven.files("msgs"))
    assert segments > 5
    taken = [driven.take() for _ in range(200)]
    for taker in taken:
        driven.settle(taker)
    driven.pump(lambda: remover.open > 0)
    # What it was given has ended, and nothing of it is taken back.
    remover.stop()
    assert remover.open > 0
    assert len(driven.files("msgs")) < segments
    assert deleted_and_open(tmp_path) == []


def test_what_others_wait_for_does_not_wait_for_the_files_of_a_deleted_queue(
    tmp_path: Path,
) -> None:
    driven = Driven(tmp_path, segment_size=4096)
    for _ in range(200):
        driven.publish(bytes(100))
    driven.sync()
    recorder.stall("unlink", 60)
    try:
        driven.queue.delete()
        told: list[bool] = []
        driven.persister.after_round(lambda: told.append(True))
        driven.pump(lambda: bool(told), seconds=30)
        assert driven.files("msgs")
    finally:
        recorder.stall("unlink", 0)
    driven.pump(lambda: not driven.files("msgs"))
    driven.stop()
