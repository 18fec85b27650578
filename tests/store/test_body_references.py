"""Who refers to a shared body, where that is not told at once: references that a thread reads while
rounds go on, those of what cannot be read at a start, and those of a vhost that goes."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from broker.store.files import disk
from tests.store.bodies_rig import PROPERTIES, Rig, backends, body, settings_of
from tests.store.driven import ready


def directory_of(rig: Rig, number: int) -> str:
    return f"queues/{(1 << 32) + 100 + number:016x}"


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_rounds_cost_the_same_while_the_references_of_a_purged_backlog_are_read(
    tmp_path: Path, how: str
) -> None:
    rig = Rig(tmp_path / "data", segment_size=4096)
    number = 0
    while rig.queues[0].segments < 4:
        rig.publish(body(number), [0, 1])
        number += 1
        if number % 20 == 0:
            rig.settle()
    rig.settle()
    held = threading.Event()
    rig.persister.collecting.submit(held.wait, lambda *_: None)
    getattr(rig.queues[0], how)()
    waiting = []
    for _ in range(6):
        rig.queues[2].put(b"x", b"k", PROPERTIES, b"of somebody else", True)
        rig.persister.after_round(lambda: None)
        rig.turn.run()
        rig.persister.drain_writer()
        waiting.append(len(rig.persister.retries))
    held.set()
    rig.settle()
    # Four segments wait, and their store is asked once in each round.
    assert waiting == [1] * 6
    assert rig.bodies.references == number
    assert set(rig.image().values()) == {1}
    assert list(rig.path.glob(f"{directory_of(rig, 0)}/msgs.*")) == []
    rig.stop()


@backends
def test_a_segment_that_cannot_be_read_at_one_start_keeps_bodies_that_others_settle(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path / "data", queues=2, settings=settings_of(backend))
    for number in range(5):
        rig.publish(body(number), [0, 1])
    rig.settle()
    rig.stop(clean=False)
    read = disk.read

    def read_all_but_one(path: str) -> bytes:
        if f"{directory_of(rig, 1)}/msgs." in path:
            raise OSError(errno.EIO, "Input/output error", path)
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "read", read_all_but_one)
        rig.start()
    assert any("cannot be read" in problem for problem in rig.problems)
    assert rig.queues[1].messages_ready == 0
    for _ in range(5):
        rig.queues[0].settle_place(rig.get(0).place)
    rig.settle()
    rig.collect()
    rig.restart()
    assert [rig.get(1).body for _ in range(5)] == [body(number) for number in range(5)]
    assert rig.bodies.figures()["dangling"] == 0
    # The start that could read everything counted anew: nothing is kept for ever.
    assert set(rig.image().values()) == {1}
    rig.stop()


def test_what_a_deleted_vhost_did_not_write_holds_no_publisher_of_another_one(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path / "data", queues=3)
    relieved: list[bool] = []
    rig.persister.relieved = lambda: relieved.append(True)
    number = 0
    while not rig.persister.has_to_wait():
        rig.publish(body(number, 1 << 20), [0, 1])
        number += 1
    # The order of `VHost.delete`.
    for queue in rig.queues[:2]:
        queue.delete()
    rig.bodies.delete()
    assert list(rig.bodies.remove_files()) == []
    rig.settle()
    rig.queues[2].put(b"x", b"k", PROPERTIES, b"of another vhost", True)
    rig.settle()
    assert rig.persister.tail_bytes == 0
    assert relieved == [True]
    assert not rig.persister.has_to_wait()
    rig.stop(clean=False)


@backends
def test_a_vhost_goes_with_messages_in_hand_and_the_broker_goes_on(
    tmp_path: Path, backend: str
) -> None:
    rig = Rig(tmp_path / "data", queues=2, settings=settings_of(backend))
    for number in range(5):
        rig.publish(body(number), [0, 1])
    rig.restart()
    for _ in range(3):
        rig.get(0)
    for queue in rig.queues:
        queue.delete()
    rig.bodies.delete()
    for _ in rig.bodies.remove_files():
        pass
    rig.settle()
    assert rig.failures == []
    rig.stop(clean=False)


@backends
@pytest.mark.parametrize("is_written", [True, False], ids=["on the disk", "in flight"])
def test_the_files_of_a_deleted_vhost_are_closed_and_removed(
    tmp_path: Path, backend: str, is_written: bool
) -> None:
    rig = Rig(tmp_path / "data", queues=3, settings=settings_of(backend, file_size=20_000))
    for number in range(10):
        rig.publish(body(number), [0, 1])
    if is_written:
        rig.settle()
    else:
        rig.persister.tick()
        rig.turn.run()
        assert rig.persister.writer.open
    assert rig.bodies.figures()["files"] == 4
    for queue in rig.queues[:2]:
        queue.delete()
    rig.bodies.delete()
    for _ in rig.bodies.remove_files():
        pass
    rig.settle()
    assert list(rig.path.rglob("*.bdy")) == []
    links = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert [path for path in links if path.is_relative_to(rig.path) and ".bdy" in path.name] == []
    # What others write is written and synced as before.
    rig.queues[2].put(b"x", b"k", PROPERTIES, b"of another vhost", True)
    rig.settle()
    assert rig.failures == []
    rig.stop(clean=False)


def test_no_hole_is_made_where_references_are_still_to_be_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", segment_size=32 << 10)
    queue = rig.queues[0]
    number = 0
    while queue.segments < 2:
        rig.publish(body(number), [0, 1])
        number += 1
    rig.settle()
    first, second, *others = [rig.get(0) for _ in range(200)]
    for taken in others:
        queue.settle_place(taken.place, True)
    rig.settle()
    held = threading.Event()
    rig.persister.collecting.submit(held.wait, lambda *_: None)
    queue.purge()
    queue.put(b"x", b"k", PROPERTIES, b"the cursor goes on", True)
    last = rig.get_at_once(0)
    queue.settle_place(second.place, True)
    remover = rig.persister.io_threads[2]
    for _ in range(3):
        rig.persister.tick()
        rig.turn.run()
        rig.persister.drain_writer()
        if remover.open:
            ready([remover.event_fd], None)
            rig.persister.threads[remover]()
    held.set()
    rig.settle()
    # What is delivered and not acked keeps its segment; all others lost one of two references.
    assert rig.bodies.references == number + 1
    assert sorted(rig.image().values()) == [1] * (number - 1) + [2]
    for taken in (first, last):
        queue.settle_place(taken.place, True)
    rig.stop()


@backends
def test_a_clean_start_counts_no_reference_of_what_never_reached_the_disk(
    tmp_path: Path, backend: str
) -> None:
    rig = Rig(tmp_path / "data", queues=2, settings=settings_of(backend), segment_size=4096)
    for number in range(5):
        rig.publish(body(number), [0, 1])
        for queue in (0, 1):
            # Settled before a round took it.
            rig.queues[queue].settle_place(rig.get_at_once(queue).place)
    count = 0
    while rig.queues[0].segments < 3:
        rig.publish(body(count), [0, 1])
        count += 1
    # The sealed segments have their summaries.
    rig.settle()
    rig.settle()
    assert list(rig.path.rglob("meta.*"))
    rig.restart()
    assert rig.was_clean
    assert rig.bodies.references == 2 * count == sum(rig.image().values())
    for queue in rig.queues:
        queue.purge()
    rig.settle()
    assert rig.bodies.references == 0
    rig.stop()
